package sim

import (
	"context"
	"math/rand/v2"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// faulty is a transport on which bindings fail. A Trial calls it from one goroutine.
type faulty struct {
	client.Transport
	faults Faults
	random *rand.Rand
	failed int
}

// Create implements client.Transport.
func (f *faulty) Create(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	if ref.Subresource != "binding" {
		return f.Transport.Create(ctx, ref, obj, opts)
	}
	switch x := f.random.Float64(); {
	case x < f.faults.Refused:
		f.failed++
		return nil, apierrors.NewInternalError(errRefused)
	case x < f.faults.Refused+f.faults.Lost:
		if _, err := f.Transport.Create(ctx, ref, obj, opts); err != nil {
			return nil, err
		}
		f.failed++
		return nil, apierrors.NewTimeoutError("the answer was lost", 1)
	}
	return f.Transport.Create(ctx, ref, obj, opts)
}
