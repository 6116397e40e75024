package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

func (q *quick) namespace(name string) {
	q.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := q.api.CoreV1().Namespaces().Create(q.Context(), ns, metav1.CreateOptions{}); err != nil {
		q.Fatal(err)
	}
}

func (q *quick) quota(namespace, name string, hard corev1.ResourceList) {
	q.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	if _, err := q.api.CoreV1().ResourceQuotas(namespace).Create(q.Context(), quota, metav1.CreateOptions{}); err != nil {
		q.Fatal(err)
	}
	q.until("the quota is counted", func(ctx context.Context) error {
		now, err := q.api.CoreV1().ResourceQuotas(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(now.Status.Used) != len(hard) {
			err = fmt.Errorf("status %+v", now.Status)
		}
		return err
	})
}

func (q *quick) used(namespace, name string, resource corev1.ResourceName, want string) {
	q.Helper()
	q.until(fmt.Sprintf("%s of %s used", want, resource), func(ctx context.Context) error {
		now, err := q.api.CoreV1().ResourceQuotas(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := now.Status.Used[resource]; got.String() != want {
			return fmt.Errorf("%s", got.String())
		}
		return nil
	})
}

// Many create and delete at once. What a watcher sees at any revision must be within the quota, and at the end the quota must know what is there.
func TestAQuotaHoldsUnderConcurrency(t *testing.T) {
	const limit, creators, rounds = 7, 12, 40
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	q := startQuick(t)
	q.namespace("crowd")
	q.quota("crowd", "few", corev1.ResourceList{"secrets": resource.MustParse(fmt.Sprint(limit)), "count/secrets": resource.MustParse("100")})
	secrets := q.api.CoreV1().Secrets("crowd")
	watcher, err := secrets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	var most, refusals atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		n := int64(0)
		for e := range watcher.ResultChan() {
			switch e.Type {
			case watch.Added:
				n++
			case watch.Deleted:
				n--
			}
			most.Store(max(most.Load(), n))
		}
	}()
	var all sync.WaitGroup
	for w := range creators {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := range rounds {
				name := fmt.Sprintf("s-%d-%d", w, i)
				_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				switch {
				case err == nil && random.IntN(3) > 0:
					err = secrets.Delete(t.Context(), name, metav1.DeleteOptions{})
				case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: few, requested: secrets=1, used: secrets=7, limited: secrets=7"):
					refusals.Add(1)
					if list, listErr := secrets.List(t.Context(), metav1.ListOptions{}); listErr == nil && len(list.Items) > 0 {
						err = secrets.Delete(t.Context(), list.Items[random.IntN(len(list.Items))].Name, metav1.DeleteOptions{})
					} else {
						err = listErr
					}
				}
				if err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	all.Wait()
	left, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q.used("crowd", "few", "secrets", fmt.Sprint(len(left.Items)))
	watcher.Stop()
	<-done
	if most.Load() > limit || refusals.Load() == 0 {
		t.Errorf("%d secrets at once with a quota of %d; %d refusals", most.Load(), limit, refusals.Load())
	}
}

func TestAQuotaFollowsItsObjects(t *testing.T) {
	q := startQuick(t)
	ctx := t.Context()
	q.namespace("small")
	q.quota("small", "q", corev1.ResourceList{"pods": resource.MustParse("2"), "requests.cpu": resource.MustParse("1"), "services.nodeports": resource.MustParse("1"),
		"requests.storage": resource.MustParse("10Gi")})
	pods := q.api.CoreV1().Pods("small")
	pod := func(name, cpu string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.org/app:1"}}}}
		if cpu != "" {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu)}
		}
		return p
	}
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a refusal with %q", err, want)
		}
	}
	_, err := pods.Create(ctx, pod("none", ""), metav1.CreateOptions{})
	refused(err, `pods "none" is forbidden: failed quota: q: must specify requests.cpu for: c`)
	if _, err := pods.Create(ctx, pod("a", "600m"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = pods.Create(ctx, pod("b", "600m"), metav1.CreateOptions{})
	refused(err, `pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1`)
	if _, err := pods.Create(ctx, pod("b", "600m"), metav1.CreateOptions{DryRun: []string{"All"}}); err == nil {
		t.Error("a dry run above the quota is let through")
	}
	if _, err := pods.Create(ctx, pod("c", "100m"), metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
		t.Error(err)
	}
	q.used("small", "q", "requests.cpu", "600m")
	if err := pods.Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	q.used("small", "q", "requests.cpu", "0")

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "a", Port: 1}, {Name: "b", Port: 2}}}}
	service, err = q.api.CoreV1().Services("small").Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service.Spec.Type = corev1.ServiceTypeNodePort
	_, err = q.api.CoreV1().Services("small").Update(ctx, service, metav1.UpdateOptions{})
	refused(err, "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1")
	service.Spec.Ports = service.Spec.Ports[:1]
	if service, err = q.api.CoreV1().Services("small").Update(ctx, service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.used("small", "q", "services.nodeports", "1")
	service.Spec.Type = corev1.ServiceTypeClusterIP
	if _, err = q.api.CoreV1().Services("small").Update(ctx, service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.used("small", "q", "services.nodeports", "0")
}
