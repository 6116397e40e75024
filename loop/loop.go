// Package loop is the runtime that every control loop stands on: a keyed work queue with back-off and rate limits, workers,
// leadership, declared reads and writes, metrics and traces.
//
// A loop is level-triggered: Reconcile gets a key, looks at the present state, and acts until nothing differs. The runtime
// guarantees that one key is worked on by one worker at a time, that a change during the work leads to another pass, that a failing key is
// retried with exponential back-off without holding up the others, and that a write which the loop did not declare fails.
//
// The package knows nothing of what loops do.
package loop

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
)

// Key names what a pass is about: usually an object's namespace and name.
type Key = types.NamespacedName

// Result says what happens after a pass without error.
type Result struct {
	// After, when positive, asks for another pass then, whatever happens.
	After time.Duration
}

// Access is what a loop may do with one resource: verbs as RBAC names them. Resource "pods/status" names a subresource.
type Access struct {
	schema.GroupResource
	Verbs []string
}

// Descriptor is the whole declaration of a loop; its RBAC role, metric names and place in the loop graph derive from it.
type Descriptor struct {
	// Name is unique, lower case with dashes, such as "replicaset".
	Name string
	// Reads lists what it watches or gets; Writes what it changes. A write that is not declared fails.
	Reads, Writes []Access
	// Workers is how many keys are worked on at once; zero means 1.
	Workers int
	// Start wires the loop: it asks in for caches and clients, registers OnChange handlers that call in.Enqueue, and returns the
	// function for one pass. It is called once, before the caches run.
	Start func(in Inputs) (Reconcile, error)
}

// Reconcile is one pass over one key. An error means: again, after back-off.
type Reconcile func(ctx context.Context, key Key) (Result, error)

// Inputs is what the runtime gives a loop at Start.
type Inputs struct {
	// Transport reaches the gate as this loop's own user, held to the declared reads and writes.
	Transport client.Transport
	// Caches is shared by all loops of the process: asking twice for one kind gives one cache.
	Caches *client.Caches
	// Enqueue asks for a pass over a key, EnqueueAfter for one later. Keys are deduplicated.
	Enqueue      func(Key)
	EnqueueAfter func(Key, time.Duration)
	// Event records a Kubernetes Event about an object; kind is corev1.EventTypeNormal or EventTypeWarning. It never blocks.
	Event func(about client.Object, kind, reason, message string)
	Clock clock.WithTicker
	Log   *slog.Logger
}
