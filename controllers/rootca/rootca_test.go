package rootca_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/rootca"
	"github.com/yare-project/yare/controllers/serviceaccount"
)

func TestEveryNamespaceGetsItsAccountAndAuthority(t *testing.T) {
	s := ct.New(t, rootca.Descriptor([]byte("PEM")), serviceaccount.Descriptor()).Go()
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ct.Namespace}})
	cert := func() string {
		if m := ct.Get[*corev1.ConfigMap](s, "kube-root-ca.crt"); m != nil {
			return m.Data["ca.crt"]
		}
		return ""
	}
	account := func() bool { return ct.Get[*corev1.ServiceAccount](s, "default") != nil }
	ct.UntilEqual(s, "certificate", "PEM", cert)
	ct.UntilEqual(s, "account", true, account)

	ct.Change(s, ct.Get[*corev1.ConfigMap](s, "kube-root-ca.crt"), func(m *corev1.ConfigMap) { m.Data = map[string]string{"ca.crt": "forged", "x": "y"} })
	ct.UntilEqual(s, "put right", "PEM", cert)
	ct.UntilEqual(s, "nothing else in it", 1, func() int { return len(ct.Get[*corev1.ConfigMap](s, "kube-root-ca.crt").Data) })
	ct.Delete(s, ct.Get[*corev1.ConfigMap](s, "kube-root-ca.crt"), metav1.DeleteOptions{})
	ct.Delete(s, ct.Get[*corev1.ServiceAccount](s, "default"), metav1.DeleteOptions{})
	s.Settled()
	ct.UntilEqual(s, "certificate again", "PEM", cert)
	ct.UntilEqual(s, "account again", true, account)

	s.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "mine"}, Data: map[string]string{"a": "b"}})
	s.Settled()
	if got := ct.Get[*corev1.ConfigMap](s, "mine"); got.Data["a"] != "b" {
		t.Error("another ConfigMap was touched")
	}
}

func TestNothingIsMadeInANamespaceThatGoes(t *testing.T) {
	s := ct.New(t, rootca.Descriptor([]byte("PEM")), serviceaccount.Descriptor()).Go()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ct.Namespace}}
	ns.Status.Phase = corev1.NamespaceTerminating
	s.Put(ns)
	s.Settled()
	if n := len(ct.All[*corev1.ConfigMap](s)) + len(ct.All[*corev1.ServiceAccount](s)); n != 0 {
		t.Errorf("%d objects were made in a terminating namespace", n)
	}
}
