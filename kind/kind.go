// Package kind says what a kind of the API is: one declarative value, from which the API server derives routes, discovery, OpenAPI,
// tables, status/spec separation, generation, apply schemas and field selectors.
//
// A kind's author fills a [Def] of a Go type and hands it to [Add]. What comes out is a [Kind], the same thing with the Go type
// erased, so that the API server serves every kind, built in or defined by a user, without naming one.
//
// Definitions are values: nothing here keeps state, and every function of a Def must be pure unless its comment says otherwise.
package kind

import (
	"context"
	"fmt"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Object is any API object with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// Scope says whether objects live in namespaces.
type Scope int

const (
	Namespaced Scope = iota
	Cluster
)

// Names are a kind's names. Kind and Singular follow from the Go type when empty.
type Names struct {
	Plural     string
	Singular   string
	Kind       string
	Short      []string
	Categories []string
}

// Group is an API group: the unit of discovery.
type Group struct {
	// Name is empty for the core group.
	Name string
	// Versions are served, preferred first. A kind's hub version is the first unless its Def says otherwise.
	Versions []string
	// AddToScheme registers the Go types of all versions, one function a version.
	AddToScheme []func(*runtime.Scheme) error
	Kinds       []*Kind

	// AnyFinalizer lets objects have finalizers without a domain that are not the cluster's own.
	AnyFinalizer bool

	scheme *runtime.Scheme
}

// Scheme holds the Go types of the group's versions. It is built on first use, while kinds are being added by one goroutine.
func (g *Group) Scheme() *runtime.Scheme {
	if g.scheme != nil {
		return g.scheme
	}
	g.scheme = runtime.NewScheme()
	for _, add := range g.AddToScheme {
		if err := add(g.scheme); err != nil {
			panic(fmt.Sprintf("kind: group %q: %v", g.Name, err))
		}
	}
	return g.scheme
}

// Def declares a kind whose hub (stored) version is the Go type T. Every function is optional.
type Def[T any] struct {
	Names   Names
	Scope   Scope
	Version string
	// Relaxed objects are acknowledged before they are on disk: only for what is rewritten all the time (heartbeat Leases, Events).
	Relaxed bool
	// Verbs limits what is served; empty means all eight (create, delete, deletecollection, get, list, patch, update, watch).
	Verbs []string

	// Default fills what the client left out. It must be idempotent.
	Default func(obj *T)
	// Prepare resets what a client may not set, and carries over what an update must keep, before defaulting's result is validated.
	// old is nil on create. Status is separated by the engine already.
	Prepare func(new, old *T)
	// Validate checks a whole object on create (old is nil) and update. Metadata is checked by the engine.
	Validate func(new, old *T) field.ErrorList
	// ValidateStatus checks an update of the status subresource.
	ValidateStatus func(new, old *T) field.ErrorList
	// PrepareStatus is Prepare for the status subresource.
	PrepareStatus func(new, old *T)
	// Warn returns warnings for the client.
	Warn func(new, old *T) []string
	// ValidateName checks metadata.name; nil means a DNS-1123 subdomain. prefix is true for a generateName.
	ValidateName func(name string, prefix bool) []string

	// AnyGenerateName lets an update set a metadata.generateName that ValidateName would not let a create have; it changes nothing any more.
	AnyGenerateName bool

	// Template says what objects have in common that are made in numbers. Nil: nothing.
	Template *Template[T]

	// Columns of kubectl's table after Name and before Age, both of which the engine adds unless NoAge.
	Columns []Column[T]
	NoAge   bool
	// NoName says that Columns has its own Name column, which the engine then doesn't put first: for an Event, which leads with its time, and for
	// classes, whose name tells the default.
	NoName bool
	// Ordered says that columns stand in the order given, where otherwise those for wide output come last.
	Ordered bool
	// Warning is told to everybody who uses the hub version: that it is deprecated.
	Warning string
	// Fields are the field selectors beyond metadata.name and, for kinds in namespaces, metadata.namespace.
	Fields map[string]func(obj *T) string
	// FieldRefusal is the text that refuses another field selector, with %s or %q for its name; empty: that of most kinds.
	FieldRefusal string

	// NoStatus says that a T with a Status field has no status subresource all the same.
	NoStatus bool
	Scale    *Scale[T]
	Subs     []Sub[T]
	// Served are further versions (or groups) of the same stored objects.
	Served []Served[T]

	// Assign fills what the cluster hands out (an address, a port), asking taken whether a value of a pool is in use. It runs under the kind's claim lock,
	// after validation. Claims lists what an object holds; the engine refuses two holders and forgets a deleted object's.
	Assign func(env Env, taken func(pool, value string) bool, new, old *T) field.ErrorList
	Claims func(obj *T) []Claim

	// Attendants are objects of other kinds that exist exactly as long as obj says so: they are made and deleted in the transaction that writes obj
	// (a Service's IPAddresses). One that is there already, of whomever, makes the write fail.
	Attendants func(obj *T) []Attendant

	// Grace makes deletion graceful: it returns the seconds to wait for whoever finishes the deletion (a Pod's node); 0 deletes at once.
	// options is nil when a collection is deleted without any.
	Grace func(obj *T, options *metav1.DeleteOptions) int64
	// OrphanByDefault keeps dependents when a delete names no propagation policy (batch/v1 Job).
	OrphanByDefault bool
	// OrphanWarning is told to who deletes an object without a propagation policy.
	OrphanWarning string
	// CreateOnUpdate lets a PUT make an object that is not there.
	CreateOnUpdate bool
	// AnyFinalizer is the group's for this kind alone.
	AnyFinalizer bool
	// RequireVersion refuses an update without resourceVersion.
	RequireVersion bool
	// SpecOf extracts what metadata.generation counts changes of; nil means the Spec field if T has one, else nothing is counted.
	SpecOf func(obj *T) any
	// SpecWithout names fields of Spec that do not count. It is for kinds without SpecOf.
	SpecWithout []string
	// NoGeneration switches generation off for a kind with a Spec that does not count.
	NoGeneration bool
	// StatusOnCreate keeps the status that a create sends (Node: its agent registers it whole); other kinds start with an empty one.
	StatusOnCreate bool
	// KeepDeleted says that an object which is marked deleted and has no metadata.finalizers left must stay all the same (Namespace, for its
	// spec.finalizers). It also makes deletion mark the object instead of removing it at once. Nil means no.
	KeepDeleted func(obj *T) bool
	// OnDelete changes an object in the same write that marks it deleted (Namespace: phase Terminating).
	OnDelete func(obj *T)
	// ReturnDeleted answers a delete that removes the object at once with its last state, where other kinds answer with a Status.
	ReturnDeleted bool
	// Body is how many bytes a request about the kind may carry where that is more than the server allows others. It is for kinds that only
	// administrators write.
	Body int64

	// TTL makes objects expire: each is deleted this long after its last write. Zero or a nil function keeps them.
	TTL func(Settings) time.Duration

	// Answer makes the kind virtual: a create is answered and nothing is stored (SubjectAccessReview, TokenReview).
	Answer func(ctx context.Context, env Env, obj *T) (*T, error)
}

// Template is for a kind whose objects are mostly made in numbers from few templates: they share memory, and what is the same is judged once.
type Template[T any] struct {
	// Key is equal for objects of one template, and mostly different for those of others.
	Key func(obj *T) uint64
	// Share gives obj, which is complete, the memory of like where both say the same. It reports whether Validate on creation and Warn, neither of
	// which found anything about like, find nothing about obj either. like is shared and must not be changed.
	Share func(obj, like *T) bool
}

// Claim is a value that one object of a kind holds exclusively, such as {"ip", "10.43.0.10"} or {"port/TCP", "30080"}.
type Claim struct{ Pool, Value string }

// Attendant is an object of another kind that goes with one. Kinds that nobody serves have no attendants.
type Attendant struct {
	Resource schema.GroupResource
	Object   Object
	// Mine tells whether what has the object's name now is the attendant, and not somebody else's object.
	Mine func(found Object) bool
}

// Column is one column of a table. Value gets the time of the request, for ages; it returns a string, an integer or a bool.
type Column[T any] struct {
	Name        string
	Type        string // "string", "integer", "boolean", "date"; empty means string
	Format      string
	Description string
	Priority    int32 // above 0: only in wide output
	Value       func(obj *T, now time.Time) any
}

// Scale maps the scale subresource (autoscaling/v1) onto T.
type Scale[T any] struct {
	Replicas       func(obj *T) int32
	SetReplicas    func(obj *T, n int32)
	StatusReplicas func(obj *T) int32
	Selector       func(obj *T) string
}

// Sub is a subresource other than status and scale. Exactly one of Replace, Create and Connect is set.
type Sub[T any] struct {
	Name string
	// Body is the kind that the subresource takes and gives, New makes one; zero and nil mean the parent's own.
	Body schema.GroupVersionKind
	New  func() runtime.Object
	// Replace makes it part of the parent (get, update, patch): it copies into obj, a copy of the stored parent, what the subresource may change of
	// from. Validate then sees the result. (An object that is marked deleted and has no finalizers left is removed by the engine.)
	Replace  func(obj, from *T)
	Validate func(new, old *T) field.ErrorList
	// Create answers a POST (binding, eviction, token). parent is the stored object and must not be changed.
	Create func(ctx context.Context, env Env, parent *T, body runtime.Object, opts metav1.CreateOptions) (runtime.Object, error)
	// Connect streams to a backend (log, exec, attach, portforward, proxy) for the verbs listed.
	Connect func(ctx context.Context, env Env, parent *T, path string, query url.Values) (Target, error)
	Methods []string // HTTP methods of a Connect
	// Verb is the RBAC verb of a Connect when it is not derived from the method: "get" for log. Also is one that the user must be allowed beside it: "create"
	// for exec, since a WebSocket begins with a GET.
	Verb, Also string
	// Named says that the name in the URL of a Connect may be scheme:name:port or name:port (proxy). The engine takes it apart, looks name up,
	// authorizes for name (or for the name as the URL spells it), and hands scheme and port to Connect in the context: [WithVia], [ViaOf].
	Named bool
	// Older are further versions that the body may be of; they have the same fields.
	Older []schema.GroupVersion
	// BodyNamed says that the body of a Create names its object itself, as Create checks. Any other body is given the name in the URL.
	BodyNamed bool
	// NoPatch limits a Replace to updates: it can be neither read nor patched.
	NoPatch bool
}

// Target is where a Connect goes.
type Target struct {
	// URL is nil where there is nothing to connect to and no fault in it: the answer is empty (204).
	URL *url.URL
	// Node says that the backend is a node agent: it is called with the API server's client certificate and its certificate is
	// checked against the cluster's CA under this server name.
	Node string
	// InsecureTLS skips the check of the backend's certificate (https: prefixes of the proxy subresource).
	InsecureTLS bool
	// Stream marks a backend whose answer is unbounded (log with follow): no timeout, flushed as it comes.
	Stream bool
}

// Served is another version, maybe in another group, of the stored T.
type Served[T any] struct {
	GroupVersion schema.GroupVersion
	New          func() runtime.Object
	NewList      func() runtime.Object
	// To converts from the hub, From to it. Neither may change its argument, and the result must not share memory with it.
	To   func(hub *T) (runtime.Object, error)
	From func(obj runtime.Object) (*T, error)
	// Columns replaces the hub's in this version's table when not nil; they see the hub object.
	Columns []Column[T]
	// Names replaces the hub's names when not zero.
	Names Names
	// Fields replaces the hub's field selectors when not nil.
	Fields map[string]func(obj *T) string
	// Validate is checked after the hub's Validate when a write came through this version: for a version that is stricter than the hub.
	Validate func(new, old *T) field.ErrorList
}
