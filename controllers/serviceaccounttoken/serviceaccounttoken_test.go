package serviceaccounttoken_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/serviceaccounttoken"
)

var config = serviceaccounttoken.Config{CA: []byte("PEM"), Sign: func(namespace, account, uid, secret string) (string, error) {
	return fmt.Sprintf("token of %s/%s for %s, %t", namespace, account, secret, uid != ""), nil
}}

func secret(name, account string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type: corev1.SecretTypeServiceAccountToken}
}

func TestASecretIsFilledAndGoesWithItsAccount(t *testing.T) {
	s := ct.New(t, serviceaccounttoken.Descriptor(config))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "web"}}
	s.Put(account, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "opaque"}, Type: corev1.SecretTypeOpaque})
	s.Go()
	s.Put(secret("kept", "web"), secret("lost", "nobody"))
	data := func() map[string]string {
		out := map[string]string{}
		if got := ct.Get[*corev1.Secret](s, "kept"); got != nil {
			for k, v := range got.Data {
				out[k] = string(v)
			}
		}
		return out
	}
	want := map[string]string{"token": "token of test/web for kept, true", "ca.crt": "PEM", "namespace": ct.Namespace}
	ct.UntilEqual(s, "the secret is filled", want, data)
	ct.UntilEqual(s, "the secret of nobody goes", true, func() bool { return ct.Get[*corev1.Secret](s, "lost") == nil })
	stored := ct.Get[*corev1.Secret](s, "kept")
	if stored.Annotations[corev1.ServiceAccountUIDKey] == "" {
		t.Error("the account's uid is not noted")
	}
	ct.Change(s, stored, func(x *corev1.Secret) { delete(x.Data, "token"); x.Data["ca.crt"] = []byte("forged") })
	ct.UntilEqual(s, "it is filled again", want, data)
	s.Settled()
	ct.Delete(s, account, metav1.DeleteOptions{})
	ct.UntilEqual(s, "it goes with its account", true, func() bool { return ct.Get[*corev1.Secret](s, "kept") == nil })
	if ct.Get[*corev1.Secret](s, "opaque") == nil {
		t.Error("another secret went too")
	}
}

func TestPlan(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "web", UID: "1"}}
	full := secret("kept", "web")
	full.Annotations[corev1.ServiceAccountUIDKey] = "1"
	full.Data = map[string][]byte{"token": []byte("T"), "ca.crt": []byte("PEM"), "namespace": []byte("elsewhere")}
	changed := func(change func(*corev1.Secret)) *corev1.Secret { s := full.DeepCopy(); change(s); return s }
	for name, test := range map[string]struct {
		have    *corev1.Secret
		account *corev1.ServiceAccount
		want    string
	}{
		"full":             {full, account, "nothing"},
		"no account":       {full, nil, "remove"},
		"another account":  {changed(func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountUIDKey] = "2" }), account, "remove"},
		"no token":         {changed(func(s *corev1.Secret) { delete(s.Data, "token") }), account, "write"},
		"an old authority": {changed(func(s *corev1.Secret) { s.Data["ca.crt"] = []byte("OLD") }), account, "write"},
		"names no account": {changed(func(s *corev1.Secret) { s.Annotations = nil }), nil, "nothing"},
		"of another type":  {changed(func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), nil, "nothing"},
		"is going away":    {changed(func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{} }), nil, "nothing"},
	} {
		want, remove, err := serviceaccounttoken.Plan(test.have, test.account, config)
		got := "nothing"
		if remove {
			got = "remove"
		} else if want != nil {
			got = "write"
			if d := cmp.Diff([]string{"1", "elsewhere"}, []string{want.Annotations[corev1.ServiceAccountUIDKey], string(want.Data["namespace"])}); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
		if got != test.want || err != nil {
			t.Errorf("%s: %s %v, want %s", name, got, err, test.want)
		}
	}
	broken := config
	broken.Sign = func(string, string, string, string) (string, error) { return "", errors.New("no key") }
	if _, _, err := serviceaccounttoken.Plan(secret("kept", "web"), account, broken); err == nil {
		t.Error("a token that cannot be signed is no error")
	}
}
