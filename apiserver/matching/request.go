// Package matching shows a request to the rules that users write: webhooks' and policies'. It says what the request is about in each version
// of its resource, whether rules and selectors choose it, and gives its objects in the version that a rule asked for.
//
// Guarantees: a request's stored old object is never changed; a changed new object goes back into the request through [Request.Set] only, which keeps
// what a rule may not change (identity, and the part of the object that the request's verb does not write).
//
// A Request belongs to the goroutine that handles the request; what it hands out may be read by others meanwhile. The package calls nobody and
// decides nothing about the request.
package matching

import (
	"context"
	"fmt"
	"maps"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/kind"
)

// Target is one form of a request: the resource that a rule may name, and the kind of its objects there.
type Target struct {
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
	version  *kind.Version // nil where objects have one form only: a subresource's body, a scale
}

// Request is a request as rules see it.
type Request struct {
	*kind.AdmissionRequest
	Env kind.Env

	own    Target
	others []Target
	listed bool
	shown  map[schema.GroupVersionKind]*admission.VersionedAttributes
	// evaluated is shown with its objects as plain maps, which is what expressions read.
	evaluated map[schema.GroupVersionKind]*admission.VersionedAttributes
	namespace *found
	options   runtime.Object
}

// New makes a Request.
func New(env kind.Env, r *kind.AdmissionRequest) *Request {
	q := &Request{AdmissionRequest: r, Env: env}
	q.own = Target{Resource: r.Ref.GroupVersionResource, Kind: r.Kind.Hub}
	if v, ok := r.Kind.Version(r.Ref.GroupVersion()); ok {
		q.own = q.target(v)
	}
	return q
}

// Own is the form in which the client made the request.
func (r *Request) Own() Target { return r.own }

// Others are the further forms of the same resource, in the order in which its versions are declared.
func (r *Request) Others() []Target {
	if r.listed {
		return r.others
	}
	r.listed = true
	for i := range r.Kind.Versions {
		if t := r.target(&r.Kind.Versions[i]); t.Resource != r.own.Resource && !r.Kind.Versions[i].Unserved {
			r.others = append(r.others, t)
		}
	}
	return r.others
}

func (r *Request) target(v *kind.Version) Target {
	resource := v.GroupVersion().WithResource(v.Names.Plural)
	switch {
	case r.Body != nil:
		return Target{Resource: resource, Kind: r.bodyKind()}
	case r.scaled():
		return Target{Resource: resource, Kind: scaleKind}
	}
	return Target{Resource: resource, Kind: v.GroupVersionKind, version: v}
}

// bodyKind is the kind of what was posted to a subresource. In-process callers don't always write it down.
func (r *Request) bodyKind() schema.GroupVersionKind {
	for i := range r.Kind.Subs {
		if sub := &r.Kind.Subs[i]; sub.Name == r.Ref.Subresource && !sub.Body.Empty() {
			r.Body.GetObjectKind().SetGroupVersionKind(sub.Body)
			return sub.Body
		}
	}
	return r.Body.GetObjectKind().GroupVersionKind()
}

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// scaled tells that clients see a Scale in place of the object.
func (r *Request) scaled() bool { return r.Ref.Subresource == "scale" && r.Kind.Scale != nil }

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// aboutNamespace tells that the request's object is a Namespace or a part of one.
func (r *Request) aboutNamespace() bool { return r.Ref.GroupResource() == namespaces.GroupResource() }

// Name is the object's name.
func (r *Request) Name() string {
	if r.Ref.Name == "" && r.Object != nil {
		return r.Object.GetName()
	}
	return r.Ref.Name
}

// Namespace is where the object lives. A Namespace counts as within itself, as in its URL.
func (r *Request) Namespace() string {
	if r.aboutNamespace() {
		return r.Name()
	}
	return r.Ref.Namespace
}

// RequestOptions are the options of the operation that is admitted: those of a patch become those of an update or create. Nil for connections.
func (r *Request) RequestOptions() runtime.Object {
	if r.options == nil {
		r.options = requestOptions(r.Operation, r.AdmissionRequest.Options)
	}
	return r.options
}

func requestOptions(op admissionv1.Operation, given runtime.Object) runtime.Object {
	if patch, ok := given.(*metav1.PatchOptions); ok && patch != nil {
		if op == admissionv1.Create {
			given = &metav1.CreateOptions{DryRun: patch.DryRun, FieldManager: patch.FieldManager, FieldValidation: patch.FieldValidation}
		} else {
			given = &metav1.UpdateOptions{DryRun: patch.DryRun, FieldManager: patch.FieldManager, FieldValidation: patch.FieldValidation}
		}
	}
	var out runtime.Object
	switch o := given.(type) {
	case *metav1.CreateOptions:
		c := *o
		c.TypeMeta, out = optionsType("CreateOptions"), &c
	case *metav1.UpdateOptions:
		c := *o
		c.TypeMeta, out = optionsType("UpdateOptions"), &c
	case *metav1.DeleteOptions:
		c := *o
		c.TypeMeta, out = optionsType("DeleteOptions"), &c
	}
	return out
}

func optionsType(name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: name}
}

// Review is the request as webhooks and expressions are told of it, in the form t; objects are left out.
func (r *Request) Review(t Target) *admissionv1.AdmissionRequest {
	dry := r.DryRun
	own := metav1.GroupVersionKind(r.own.Kind)
	ownResource := metav1.GroupVersionResource(r.own.Resource)
	return &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(t.Kind), Resource: metav1.GroupVersionResource(t.Resource), SubResource: r.Ref.Subresource,
		RequestKind: &own, RequestResource: &ownResource, RequestSubResource: r.Ref.Subresource,
		Name: r.Name(), Namespace: r.Namespace(), Operation: r.Operation, UserInfo: r.userInfo(), DryRun: &dry,
		Options: runtime.RawExtension{Object: r.RequestOptions()},
	}
}

func (r *Request) userInfo() authenticationv1.UserInfo {
	if r.User == nil {
		return authenticationv1.UserInfo{}
	}
	out := authenticationv1.UserInfo{Username: r.User.GetName(), UID: r.User.GetUID(), Groups: r.User.GetGroups(), Extra: map[string]authenticationv1.ExtraValue{}}
	for k, v := range maps.All(r.User.GetExtra()) {
		out.Extra[k] = v
	}
	return out
}

// Authorize answers expressions that ask whether somebody may do something.
func (r *Request) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return r.Env.Authorize(ctx, a)
}

// Annotate records something for the audit log, where there is one.
func (r *Request) Annotate(key, value string) {
	if r.AdmissionRequest.Annotate != nil {
		r.AdmissionRequest.Annotate(key, value)
	}
}

func (r *Request) convertError(t Target, err error) error {
	return fmt.Errorf("%s %q cannot be shown as %s: %w", r.Kind.Names.Kind, r.Name(), t.Kind.GroupVersion(), err)
}
