package kind

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/yare-project/yare/internal/resource"
)

// AdmissionRequest is what an admission plugin judges: a request that was authorized and decoded.
type AdmissionRequest struct {
	Operation admissionv1.Operation // Create, Update, Delete or Connect
	Kind      *Kind
	Ref       resource.Ref
	// Posted says that the client's path named no object: the name in Ref, if any, is the object's own.
	Posted bool
	User   user.Info
	// Object is the new state in the hub version: a private copy that a Mutator may change; nil for Delete and Connect.
	Object Object
	// Old is the stored state, shared: never to be changed; nil for Create.
	Old Object
	// Body is what was posted to a subresource (a Binding, an Eviction, a TokenRequest), or a connect's options; else nil.
	Body runtime.Object
	// Options is the request's CreateOptions, UpdateOptions, PatchOptions or DeleteOptions.
	Options runtime.Object
	DryRun  bool
	// Warn adds a warning to the response.
	Warn func(text string)
	// Annotate records something about the decision for the audit log; nil where nothing is recorded. A key that was used keeps its first value.
	Annotate func(key, value string)
}

// Mutator changes a request's object before it is validated. An error refuses the request; make it an *apierrors.StatusError
// (usually Forbidden) whose message says what was refused, why, and what would be accepted.
type Mutator interface {
	Name() string
	Mutate(ctx context.Context, env Env, r *AdmissionRequest) error
}

// Validator accepts or refuses a request after validation; it changes nothing.
type Validator interface {
	Name() string
	Validate(ctx context.Context, env Env, r *AdmissionRequest) error
}
