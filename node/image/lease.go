package image

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	"google.golang.org/grpc/metadata"
)

// leaseTTL ends a lease that nobody deleted, because the importer was killed.
const leaseTTL = 24 * time.Hour

// withLease keeps containerd's garbage collector away from what an import has not
// tied together yet: streams as well as layers. Call done at the end.
func (s *Store) withLease(ctx context.Context) (leased context.Context, done func(), err error) {
	leases := leasesapi.NewLeasesClient(s.conn)
	id := "import-" + rand.Text()
	_, err = leases.Create(ctx, &leasesapi.CreateRequest{ID: id, Labels: map[string]string{
		"containerd.io/gc.expire": time.Now().Add(leaseTTL).Format(time.RFC3339),
	}})
	if err != nil {
		return nil, nil, fmt.Errorf("lease: %w", err)
	}
	done = func() {
		// Deleted even if the import was cancelled.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, _ = leases.Delete(ctx, &leasesapi.DeleteRequest{ID: id})
	}
	return metadata.AppendToOutgoingContext(ctx, "containerd-lease", id), done, nil
}
