package resourcequota_test

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/resourcequota"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/internal/quota"
	ref "github.com/yare-project/yare/internal/resource"
)

// What a dead API server keeps is not counted, and the rest of the quota is.
func TestADeadServersObjectsAreNotWaitedFor(t *testing.T) {
	s := stage{Stage: controllertest.New(t, resourcequota.Descriptor(func(ctx context.Context) ([]served.Resource, error) {
		all, err := list(ctx)
		for i := range all {
			all[i].Remote = all[i].Resource == "services"
		}
		return all, err
	}, quota.NewLedger()))}
	s.Server.FailWith(func(verb string, r ref.Ref, _ runtime.Object) error {
		if r.Resource == "services" {
			return errors.New("connection refused")
		}
		return nil
	})
	s.Go()
	s.Put(secret("a"), of("q", amounts("secrets", "5", "count/services", "9")))
	s.becomes("q", "secrets=1 of count/services=9,secrets=5")
}
