package admission

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// ownerPermission lets only those change an object's owners who may delete the object, for its owners' end is its own; and only those make an owner
// wait for the object's end who may set the owner's finalizers.
type ownerPermission struct {
	kinds func() []*kind.Kind
}

func (ownerPermission) Name() string { return "OwnerReferencesPermissionEnforcement" }

func (p ownerPermission) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if r.Object == nil || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update || r.Ref.Group == "" && r.Ref.Resource == "pods" && r.Ref.Subresource == "status" {
		return nil
	}
	var old []metav1.OwnerReference
	if r.Old != nil {
		old = r.Old.GetOwnerReferences()
	}
	now := r.Object.GetOwnerReferences()
	if len(now) == 0 && len(old) == 0 || equality.Semantic.DeepEqual(now, old) {
		return nil
	}
	if r.Operation == admissionv1.Update {
		decision, reason, err := env.Authorize(ctx, authorizer.AttributesRecord{User: r.User, Verb: "delete", Namespace: r.Ref.Namespace, APIGroup: r.Ref.Group,
			APIVersion: r.Ref.Version, Resource: r.Ref.Resource, Subresource: r.Ref.Subresource, Name: r.Ref.Name, ResourceRequest: true})
		if decision != authorizer.DecisionAllow {
			return forbid(r, "cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err)
		}
	}
	return p.blocking(ctx, env, r, newlyBlocking(now, old))
}

// newlyBlocking are the references that did not block their owner's deletion before.
func newlyBlocking(now, old []metav1.OwnerReference) []metav1.OwnerReference {
	blocked := map[string]bool{}
	for _, ref := range old {
		blocked[string(ref.UID)] = ptr.Deref(ref.BlockOwnerDeletion, false)
	}
	var out []metav1.OwnerReference
	for _, ref := range now {
		if ptr.Deref(ref.BlockOwnerDeletion, false) && !blocked[string(ref.UID)] {
			out = append(out, ref)
		}
	}
	return out
}

func (p ownerPermission) blocking(ctx context.Context, env kind.Env, r *kind.AdmissionRequest, refs []metav1.OwnerReference) error {
	if len(refs) == 0 {
		return nil
	}
	finalizers := authorizer.AttributesRecord{User: r.User, Verb: "update", APIGroup: "*", APIVersion: "*", Resource: "*", Subresource: "finalizers", Name: "*", ResourceRequest: true}
	if decision, _, _ := env.Authorize(ctx, finalizers); decision == authorizer.DecisionAllow {
		return nil
	}
	for _, ref := range refs {
		owner, namespaced, err := p.resource(ref)
		if err != nil {
			return forbid(r, "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %v", ref.APIVersion, ref.Kind, err)
		}
		a := finalizers
		a.APIGroup, a.APIVersion, a.Resource, a.Name = owner.Group, owner.Version, owner.Resource, ref.Name
		if namespaced {
			a.Namespace = r.Ref.Namespace
		}
		if decision, reason, err := env.Authorize(ctx, a); decision != authorizer.DecisionAllow {
			return forbid(r, "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v, %v", reason, err)
		}
	}
	return nil
}

// resource is the resource of the owner's kind.
func (p ownerPermission) resource(ref metav1.OwnerReference) (schema.GroupVersionResource, bool, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{}, false, err
	}
	if p.kinds != nil {
		for _, k := range p.kinds() {
			for i := range k.Versions {
				if v := &k.Versions[i]; !v.Unserved && v.GroupVersionKind == gv.WithKind(ref.Kind) {
					return gv.WithResource(v.Names.Plural), k.Scope == kind.Namespaced, nil
				}
			}
		}
	}
	return schema.GroupVersionResource{}, false, errors.New("no such kind is served")
}
