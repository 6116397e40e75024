package kind

import (
	"context"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
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

	Scale *ErasedScale
	Subs  []ErasedSub

	Assign func(env Env, taken func(pool, value string) bool, new, old Object) field.ErrorList
	Claims func(obj Object) []Claim

	Grace           func(obj Object, options *metav1.DeleteOptions) int64
	OrphanByDefault bool
	CreateOnUpdate  bool
	RequireVersion  bool
	StatusOnCreate  bool
	KeepDeleted     func(obj Object) bool
	OnDelete        func(obj Object)
	ReturnDeleted   bool

	// Spec is what metadata.generation counts changes of; nil when the kind has no generation.
	Spec func(obj Object) any
	// CopyStatus sets dst's status to a copy of src's; ResetStatus empties it.
	CopyStatus  func(dst, src Object)
	ResetStatus func(obj Object)

	// TTL is how long an object lives after its last write; nil or zero: for ever.
	TTL func(Settings) time.Duration

	Answer func(ctx context.Context, env Env, obj Object) (Object, error)
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
	// Validate is checked besides the kind's own when a write came through this version.
	Validate func(new, old Object) field.ErrorList
	// Fields are the field selectors beyond metadata's.
	Fields map[string]func(hub Object) string
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
	Named    bool
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
