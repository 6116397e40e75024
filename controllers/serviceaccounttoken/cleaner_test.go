package serviceaccounttoken

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ct "github.com/yare-project/yare/controllers/controllertest"
)

func old(name string, change func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: name, CreationTimestamp: metav1.NewTime(ct.Start.AddDate(-3, 0, 0)),
		Annotations: map[string]string{corev1.ServiceAccountNameKey: "web"}, Labels: map[string]string{}}, Type: corev1.SecretTypeServiceAccountToken}
	if change != nil {
		change(s)
	}
	return s
}

func label(key string, ago time.Duration) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Labels[key] = ct.Start.Add(-ago).Format(time.DateOnly) }
}

const day, year = 24 * time.Hour, 365 * 24 * time.Hour

func TestWhatBecomesOfAnOldToken(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}, Secrets: []corev1.ObjectReference{{Name: "given"}}}
	for name, test := range map[string]struct {
		secret  *corev1.Secret
		account *corev1.ServiceAccount
		want    action
	}{
		"never used":             {old("given", nil), account, mark},
		"used long ago":          {old("given", label(lastUsedLabel, year+2*day)), account, mark},
		"used lately":            {old("given", label(lastUsedLabel, 30*day)), account, leave},
		"used on a strange day":  {old("given", func(s *corev1.Secret) { s.Labels[lastUsedLabel] = "monday" }), account, leave},
		"made on purpose":        {old("mine", nil), account, leave},
		"made lately":            {old("given", func(s *corev1.Secret) { s.CreationTimestamp = metav1.NewTime(ct.Start.Add(-day)) }), account, leave},
		"of no account":          {old("given", nil), nil, leave},
		"of another account":     {old("given", func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountUIDKey] = "2" }), account, leave},
		"of another type":        {old("given", func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), account, leave},
		"on its way":             {old("given", func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{} }), account, leave},
		"marked lately":          {old("given", label(invalidSinceLabel, 30*day)), account, leave},
		"marked a year ago":      {old("given", label(invalidSinceLabel, year+2*day)), account, remove},
		"marked on no day":       {old("given", func(s *corev1.Secret) { s.Labels[invalidSinceLabel] = "x" }), account, mark},
		"marked, and used again": {old("given", func(s *corev1.Secret) { label(invalidSinceLabel, year+2*day)(s); label(lastUsedLabel, day)(s) }), account, leave},
	} {
		if got := judge(test.secret, test.account, ct.Start); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestOldTokensGoAfterAWhile has the loop look every day, with a pod that needs one of three tokens.
func TestOldTokensGoAfterAWhile(t *testing.T) {
	for _, tracked := range []time.Duration{2 * year, day} {
		s := ct.New(t, CleanerDescriptor())
		s.Put(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "web"}, Secrets: []corev1.ObjectReference{{Name: "given"}, {Name: "needed"}}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: TrackingConfigMap}, Data: map[string]string{TrackingSince: ct.Start.Add(-tracked).Format(time.DateOnly)}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "p"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "needed"}}}}}},
			old("given", nil), old("needed", nil), old("mine", nil))
		s.Go()
		state := func() map[string]bool {
			out := map[string]bool{}
			for _, x := range ct.All[*corev1.Secret](s) {
				out[x.Name] = x.Labels[invalidSinceLabel] != ""
			}
			return out
		}
		if tracked < year {
			s.Settled()
			if d := cmp.Diff(map[string]bool{"given": false, "needed": false, "mine": false}, state()); d != "" {
				t.Errorf("tracked for a day: %s", d)
			}
			continue
		}
		ct.UntilEqual(s, "the one that nobody needs is marked", map[string]bool{"given": true, "needed": false, "mine": false}, state)
		s.Settled()
		s.Clock.Step(year + 2*day)
		ct.UntilEqual(s, "a year later it goes", map[string]bool{"needed": false, "mine": false}, state)
	}
}
