package aggregation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/internal/follow"
	"github.com/yare-project/yare/internal/resource"
)

var (
	servicesRef = resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("services")}
	slicesRef   = resource.Ref{GroupVersionResource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices")}
)

// followEndpoints has a backend checked anew when its Service or that Service's endpoints change.
func (a *Aggregator) followEndpoints(ctx context.Context) {
	for _, ref := range []resource.Ref{servicesRef, slicesRef} {
		a.running.Go(func() {
			_ = follow.Run(ctx, follow.Config{Source: a.gate, Ref: ref, Set: a.changed, Drop: a.changed, Clock: a.cfg.Clock, Log: a.cfg.Log})
		})
	}
}

func (a *Aggregator) changed(obj runtime.Object) {
	v := a.now.Load()
	if v == nil {
		return
	}
	var key types.NamespacedName
	switch o := obj.(type) {
	case *corev1.Service:
		key = types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	case *discoveryv1.EndpointSlice:
		key = types.NamespacedName{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}
	}
	for _, b := range v.byService[key] {
		b.signal()
	}
}
