package kind

import (
	"context"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Kind is a definition with its Go type erased: what the API server serves. A nil function means "nothing to do". Objects are of the
// hub's Go type everywhere but in Version's conversions.
type Kind struct {
	Group     string
	Hub       schema.GroupVersionKind
	Names     Names
	Scope     Scope
	Relaxed   bool
	Verbs     []string
	Virtual   bool
	HasStatus bool
	Versions  []Version // the hub's own first
	New       func() Object

	Default        func(obj Object)
	Prepare        func(new, old Object)
	PrepareStatus  func(new, old Object)
	Validate       func(new, old Object) field.ErrorList
	ValidateStatus func(new, old Object) field.ErrorList
	ValidateName   func(name string, prefix bool) []string
	Warn           func(new, old Object) []string

	TemplateKey func(obj Object) uint64
	Share       func(obj, like Object) bool

	FieldRefusal    string
	AnyGenerateName bool

	Scale *ErasedScale
	Subs  []ErasedSub

	Assign func(env Env, taken func(pool, value string) bool, new, old Object) field.ErrorList
	Claims func(obj Object) []Claim

	Attendants func(obj Object) []Attendant

	Grace           func(obj Object, options *metav1.DeleteOptions) int64
	OrphanByDefault bool
	OrphanWarning   string
	CreateOnUpdate  bool
	RequireVersion  bool
	AnyFinalizer    bool
	StatusOnCreate  bool
	KeepDeleted     func(obj Object) bool
	OnDelete        func(obj Object)
	ReturnDeleted   bool
	Body            int64

	// Spec is what metadata.generation counts changes of; nil when the kind has no generation.
	Spec func(obj Object) any
	// SameSpec tells whether Spec means the same of both, in less time than it takes to compare what Spec gives. Nil: there is no such way.
	SameSpec func(a, b Object) bool
	// Equal tells whether two objects mean the same. Nil for a kind without a Go type.
	Equal func(a, b Object) bool
	// CopyStatus sets dst's status to a copy of src's, MoveStatus to src's own, which must not be changed any more through src; ResetStatus empties it.
	CopyStatus  func(dst, src Object)
	MoveStatus  func(dst, src Object)
	ResetStatus func(obj Object)

	// Round cuts the times of an object that is about to be stored to what the wire can carry (whole seconds, for a MicroTime microseconds): a client that
	// writes back what it read must change nothing, and an object read from disk must be the one that was stored. obj is the caller's own.
	Round func(obj Object)

	// TTL is how long an object lives after its last write; nil or zero: for ever.
	TTL func(Settings) time.Duration

	Answer func(ctx context.Context, env Env, obj Object) (Object, error)

	// Dynamic kinds have no Go type: their objects are unstructured and say themselves which version they are in. One that was stored while another
	// version was the hub stays in it until it is written again; To of every version takes objects of any, the hub's too.
	Dynamic bool
	// Recall brings an object that comes from disk up to the schema of now. Optional.
	Recall func(obj Object)
	// Merge makes the schema by which server-side apply merges a kind without a Go type; nil: that of the Go type. It is called when first needed.
	Merge func() (managedfields.TypeConverter, error)
}

// Version is one served form of a kind.
type Version struct {
	schema.GroupVersionKind
	Names   Names
	New     func() runtime.Object
	NewList func() runtime.Object
	// To and From are nil for the hub.
	To      func(hub Object) (runtime.Object, error)
	From    func(obj runtime.Object) (Object, error)
	Columns []ErasedColumn
	NoAge   bool
	NoName  bool
	// Ordered columns stand in the order given, those for wide output too.
	Ordered bool
	// Warning is told to everybody who uses the version.
	Warning string
	// Validate is checked besides the kind's own when a write came through this version.
	Validate func(new, old Object) field.ErrorList
	// Fields are the field selectors beyond metadata's.
	Fields map[string]func(hub Object) string

	// What follows is for kinds without a Go type; zero values mean what every other kind has.

	// Unserved versions are understood, since objects may be stored in them, but nobody can ask for them.
	Unserved bool
	// ListKind names the list; empty: Kind + "List".
	ListKind string
	// NoStatus and NoScale take a subresource of the kind from this version: its status is then written with the object.
	NoStatus, NoScale bool
	// Settle finishes a decoded object: it checks metadata, drops what the schema does not have and fills in defaults. unknown names what was
	// dropped; err says why the object cannot be of the kind.
	Settle func(obj runtime.Object) (unknown []error, err error)
	// Many prepares To for stored objects that will be shown together.
	Many func(ctx context.Context, hubs []Object) error
	// ValidateStatus is checked besides the kind's own when a status was written through this version.
	ValidateStatus func(new, old Object) field.ErrorList
	// ReplicasPath is where the version keeps what the scale subresource sets; nil: spec.replicas.
	ReplicasPath []string
	// Schema describes the version to clients, in OpenAPI v3; the result is the caller's own.
	Schema func() *spec.Schema
	// SchemaID changes whenever the version's schema does.
	SchemaID string
}

// ListName is the kind of the version's list.
func (v *Version) ListName() string {
	if v.ListKind != "" {
		return v.ListKind
	}
	return v.Kind + "List"
}

// ErasedColumn is a Column of an Object.
type ErasedColumn struct {
	metav1.TableColumnDefinition
	Value func(hub Object, now time.Time) any
}

// ErasedScale is a Scale of an Object.
type ErasedScale struct {
	Replicas       func(obj Object) int32
	SetReplicas    func(obj Object, n int32)
	StatusReplicas func(obj Object) int32
	Selector       func(obj Object) string
}

// ErasedSub is a Sub of an Object.
type ErasedSub struct {
	Name     string
	Body     schema.GroupVersionKind
	New      func() runtime.Object
	Replace  func(obj, from Object)
	Validate func(new, old Object) field.ErrorList
	Create   func(ctx context.Context, env Env, parent Object, body runtime.Object, opts metav1.CreateOptions) (runtime.Object, error)
	Connect  func(ctx context.Context, env Env, parent Object, path string, query url.Values) (Target, error)
	Methods  []string
	Verb     string
	Also     string
	Named    bool
	// Older and BodyNamed are those of Sub.
	Older     []schema.GroupVersion
	BodyNamed bool
	NoPatch   bool
}

// Resource is the plural name with the group: the name of the kind's table and the subject of authorization.
func (k *Kind) Resource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Names.Plural}
}

// Version finds a served form by group and version.
func (k *Kind) Version(gv schema.GroupVersion) (*Version, bool) {
	for i := range k.Versions {
		if k.Versions[i].GroupVersion() == gv {
			return &k.Versions[i], true
		}
	}
	return nil, false
}
