package garbagecollector_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/garbagecollector"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/internal/resource"
)

// Deployments stand for what another API server keeps: while it is dead, all else is collected, and what it owns is kept in doubt.
func TestADeadServerHoldsUpOnlyItsOwn(t *testing.T) {
	var dead atomic.Bool
	dead.Store(true)
	s := ct.New(t, garbagecollector.Descriptor(func(ctx context.Context) ([]served.Resource, error) {
		all, _ := list(ctx)
		for i := range all {
			all[i].Remote = all[i].Resource == "deployments"
		}
		if dead.Load() {
			return all, errors.New("one group is not known")
		}
		return all, nil
	}))
	s.Server.FailWith(func(verb string, ref resource.Ref, _ runtime.Object) error {
		if ref.Resource == "deployments" && dead.Load() && verb != "create" && verb != "delete" {
			return errors.New("connection refused")
		}
		return nil
	})
	s.Go()
	d := s.Put(&appsv1.Deployment{ObjectMeta: meta("d")}).(*appsv1.Deployment)
	a := s.Put(cm("a")).(*corev1.ConfigMap)
	s.Put(cm("of-a", ref(a, true)), cm("of-d", ref(d, true)))
	ct.Delete(s, a, metav1.DeleteOptions{})
	expect(s, "what depends on a went, what depends on another server's object is kept", "of-d")
	dead.Store(false)
	s.Clock.Step(time.Minute)
	expect(s, "its owner is there", "of-d")
	ct.Delete(s, d, metav1.DeleteOptions{})
	ct.UntilEqual(s, "its owner went", 0, func() int { s.Clock.Step(time.Second); return len(ct.All[*corev1.ConfigMap](s)) })
}
