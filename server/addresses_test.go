package server_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/server"
)

// A Service's address is an object from the moment that the Service is there until it goes, also across a restart, and a range of addresses
// stays as long as a Service needs it (KEP-1880).
func TestServiceAddressesAreObjects(t *testing.T) {
	dir := t.TempDir()
	durable := func(c *server.Config) { c.DataDir, c.Backend = dir, server.Disk }
	var ip string
	t.Run("made with the service", func(t *testing.T) {
		q := startQuick(t, durable)
		ctx := t.Context()
		services, addresses, ranges := q.api.CoreV1().Services("default"), q.api.NetworkingV1().IPAddresses(), q.api.NetworkingV1().ServiceCIDRs()
		s, err := services.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ip = s.Spec.ClusterIP
		a, err := addresses.Get(ctx, ip, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("the address of a new service: %v", err)
		}
		if r := a.Spec.ParentRef; r == nil || r.Resource != "services" || r.Namespace != "default" || r.Name != "web" || a.Labels[networkingv1.LabelManagedBy] != "ipallocator.k8s.io" {
			t.Errorf("the address is %+v", a)
		}
		second := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"203.0.113.0/24"}}}
		if _, err := ranges.Create(ctx, second, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		q.until("the second range is ready", func(ctx context.Context) error {
			c, err := ranges.Get(ctx, "second", metav1.GetOptions{})
			if err == nil && !meta.IsStatusConditionTrue(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
				err = fmt.Errorf("its status is %+v", c.Status)
			}
			return err
		})
		far := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: corev1.ServiceSpec{ClusterIP: "203.0.113.10", Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := services.Create(ctx, far, metav1.CreateOptions{}); err != nil {
			t.Fatalf("a service of the second range: %v", err)
		}
		if err := ranges.Delete(ctx, "second", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		q.until("the second range says why it stays", func(ctx context.Context) error {
			c, err := ranges.Get(ctx, "second", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if ready := meta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady); ready == nil || ready.Reason != networkingv1.ServiceCIDRReasonTerminating {
				return fmt.Errorf("its status is %+v", c.Status)
			}
			return nil
		})
		if err := services.Delete(ctx, "far", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := addresses.Get(ctx, "203.0.113.10", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the address of a service that has gone: %v", err)
		}
	})
	t.Run("still there after a restart", func(t *testing.T) {
		q := startQuick(t, durable)
		ctx := t.Context()
		if _, err := q.api.NetworkingV1().IPAddresses().Get(ctx, ip, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := q.api.CoreV1().Services("default").Create(ctx, other, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("a second service at %s: %v", ip, err)
		}
	})
}
