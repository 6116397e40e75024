package namespace_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/yare-project/yare/client"
	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/namespace"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/internal/resource"
)

// Services stand for what another API server keeps: nothing is cached of it, and while it does not answer or is not discovered, the namespace says so, its other
// content goes, and it is asked again soon.
func TestAnotherServersContent(t *testing.T) {
	var unknown, dead atomic.Bool
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	with := func(ctx context.Context) ([]served.Resource, error) {
		all, _ := list(ctx)
		for i := range all {
			all[i].Remote = all[i].Resource == "services"
		}
		if unknown.Load() {
			return all[:2], &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{gv: errors.New("stale")}}
		}
		return all, nil
	}
	s := ct.New(t, namespace.Descriptor(with)).Go()
	s.Server.FailWith(func(verb string, ref resource.Ref, _ runtime.Object) error {
		if ref.Resource == "services" && (dead.Load() || verb == "watch") {
			return errors.New("connection refused")
		}
		return nil
	})
	unknown.Store(true)
	dead.Store(true)
	ns := s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ct.Namespace}}).(*corev1.Namespace)
	s.Put(&corev1.Service{ObjectMeta: meta("svc")}, &corev1.ConfigMap{ObjectMeta: meta("map")})
	ct.Delete(s, ns, metav1.DeleteOptions{})

	problem := func() string {
		now, err := client.Of[*corev1.Namespace](s.Server).Get(context.Background(), "", ct.Namespace)
		if err != nil {
			return err.Error()
		}
		for _, c := range now.Status.Conditions {
			if c.Status == corev1.ConditionTrue && c.Type != corev1.NamespaceContentRemaining {
				return string(c.Type) + " " + c.Reason + " " + c.Message
			}
		}
		return ""
	}
	s.Until("discovery is named", func() bool {
		return strings.HasPrefix(problem(), "NamespaceDeletionDiscoveryFailure DiscoveryFailed Discovery failed for some groups, 1 failing: ")
	},
		func() any { return problem() })
	ct.UntilEqual(s, "what is this server's own goes", 0, func() int { return len(ct.All[*corev1.ConfigMap](s)) })
	s.Settled()
	unknown.Store(false)
	s.Clock.Step(3 * time.Second)
	s.Until("the server that does not answer is named", func() bool {
		return strings.HasPrefix(problem(), "NamespaceDeletionContentFailure ContentDeletionFailed ") && strings.Contains(problem(), "connection refused")
	}, func() any { return problem() })
	s.Settled()
	dead.Store(false)
	s.Clock.Step(3 * time.Second)
	s.Until("the namespace is gone", func() bool { return strings.Contains(problem(), "not found") }, func() any { return problem() })
	if n := len(ct.All[*corev1.Service](s)); n != 0 {
		t.Errorf("%d services are left", n)
	}
}
