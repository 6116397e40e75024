package resourcequota_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/resourcequota"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/internal/quota"
)

func list(context.Context) ([]served.Resource, error) {
	var out []served.Resource
	for plural, kind := range map[string]string{"pods": "Pod", "secrets": "Secret", "services": "Service", "resourcequotas": "ResourceQuota"} {
		out = append(out, served.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource(plural), Kind: kind, Namespaced: true,
			Verbs: []string{"create", "list", "watch", "delete"}})
	}
	return out, nil
}

type stage struct {
	*controllertest.Stage
	ledger *quota.Ledger
}

func begin(t *testing.T) stage {
	ledger := quota.NewLedger()
	return stage{controllertest.New(t, resourcequota.Descriptor(list, ledger)).Go(), ledger}
}

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func of(name string, hard corev1.ResourceList) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
}

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name}}
}

func pod(name, cpu string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: amounts("cpu", cpu)}}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
}

func (s stage) status(name string) string {
	q := controllertest.Get[*corev1.ResourceQuota](s.Stage, name)
	return fmt.Sprintf("%s of %s", quota.Text(q.Status.Used), quota.Text(q.Status.Hard))
}

func (s stage) becomes(name, want string) {
	s.Helper()
	controllertest.UntilEqual(s.Stage, "status of quota "+name, want, func() string { return s.status(name) })
}

func TestCounting(t *testing.T) {
	s := begin(t)
	s.Put(secret("a"), secret("b"), pod("p", "300m"))
	q := s.Put(of("q", amounts("secrets", "5", "count/secrets", "9", "pods", "3", "requests.cpu", "2", "resourcequotas", "1"))).(*corev1.ResourceQuota)
	s.becomes("q", "count/secrets=2,pods=1,requests.cpu=300m,resourcequotas=1,secrets=2 of count/secrets=9,pods=3,requests.cpu=2,resourcequotas=1,secrets=5")
	s.Put(secret("c")) // nobody charged it
	s.becomes("q", "count/secrets=3,pods=1,requests.cpu=300m,resourcequotas=1,secrets=3 of count/secrets=9,pods=3,requests.cpu=2,resourcequotas=1,secrets=5")
	controllertest.Delete(s.Stage, secret("a"), metav1.DeleteOptions{})
	controllertest.Change(s.Stage, pod("p", "0"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	s.becomes("q", "count/secrets=2,pods=0,requests.cpu=0,resourcequotas=1,secrets=2 of count/secrets=9,pods=3,requests.cpu=2,resourcequotas=1,secrets=5")
	controllertest.Change(s.Stage, q, func(q *corev1.ResourceQuota) { q.Spec.Hard = amounts("secrets", "1", "count/boats.example.com", "1") })
	s.becomes("q", "secrets=2 of count/boats.example.com=1,secrets=1") // nobody serves boats
}

func TestScopesAreCountedApart(t *testing.T) {
	s := begin(t)
	best := of("best", amounts("pods", "5"))
	best.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
	rest := of("rest", amounts("pods", "5"))
	rest.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotBestEffort}
	s.Put(best, rest, pod("a", "1"), pod("b", "1"), pod("c", "0"))
	s.becomes("best", "pods=1 of pods=5")
	s.becomes("rest", "pods=2 of pods=5")
}

// A pod whose node is lost must not keep others from starting.
func TestAPodPastItsGracePeriodIsNotCounted(t *testing.T) {
	s := begin(t)
	p := s.Put(pod("p", "1"), of("q", amounts("pods", "5"))).(*corev1.Pod)
	s.becomes("q", "pods=1 of pods=5")
	controllertest.Delete(s.Stage, p, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](30)})
	s.Settled()
	s.becomes("q", "pods=1 of pods=5")
	s.Clock.Step(2 * time.Minute)
	s.becomes("q", "pods=0 of pods=5")
}

// A count between a charge and the coming of its object keeps the charge; when the object is there, it counts once; if it never comes, it is given up.
func TestChargesAreKept(t *testing.T) {
	s := begin(t)
	q := s.Put(of("q", amounts("secrets", "5")), secret("a")).(*corev1.ResourceQuota)
	s.becomes("q", "secrets=1 of secrets=5")
	charge := func(object types.UID) {
		t.Helper()
		c := &quota.Charge{Namespace: q.Namespace, Object: object, Amounts: map[types.UID]corev1.ResourceList{q.UID: amounts("secrets", "1")}}
		s.ledger.Open(c, s.Clock.Now())
		now := controllertest.Get[*corev1.ResourceQuota](s.Stage, "q").DeepCopy()
		quota.AddTo(now.Status.Used, amounts("secrets", "1"))
		written, err := client.Of[*corev1.ResourceQuota](s.Server).UpdateStatus(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		s.ledger.Written(c, q.UID, written.ResourceVersion)
	}
	charge("coming")
	controllertest.Delete(s.Stage, secret("a"), metav1.DeleteOptions{})
	s.becomes("q", "secrets=1 of secrets=5")
	s.Settled()
	s.becomes("q", "secrets=1 of secrets=5")
	came := secret("came")
	came.UID = "coming"
	s.Put(came)
	s.Settled()
	s.becomes("q", "secrets=1 of secrets=5")
	charge("failed")
	s.Settled()
	s.becomes("q", "secrets=2 of secrets=5")
	s.Clock.Step(quota.Patience)
	s.becomes("q", "secrets=1 of secrets=5")
}
