package admission

import (
	"context"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/diff"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/access"
	"github.com/yare-project/yare/kinds/certificates"
)

// nodeRestriction confines what a node agent writes to its own objects and the pods bound to it. The Node authorizer, which sees no
// objects, has let the request through on the condition that this plugin looks. It changes nothing, and looks at what the node sent, before later
// plugins and webhooks put in what the node may not (a taint, a protected label), and before validation.
type nodeRestriction struct{}

func (nodeRestriction) Name() string { return "NodeRestriction" }

func (nodeRestriction) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	name, isNode := access.NodeOf(r.User)
	if !isNode || r.Operation == admissionv1.Connect {
		return nil
	}
	if name == "" {
		return forbid(r, "could not determine node from user %q", r.User.GetName())
	}
	n := nodeRequest{ctx: ctx, env: env, AdmissionRequest: r, node: name}
	switch r.Ref.GroupResource() {
	case schema.GroupResource{Resource: "pods"}:
		return n.pod()
	case schema.GroupResource{Resource: "nodes"}:
		return n.own()
	case schema.GroupResource{Resource: "persistentvolumeclaims"}:
		return n.claim()
	case schema.GroupResource{Resource: "serviceaccounts"}:
		return n.token()
	case schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}:
		return n.lease()
	case schema.GroupResource{Group: storagev1.GroupName, Resource: "csinodes"}:
		if ownName(r) != name {
			return forbid(r, "can only access CSINode with the same name as the requesting node")
		}
	case schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}:
		return n.slice()
	case schema.GroupResource{Group: certificatesv1.GroupName, Resource: csrs}:
		return n.certificate()
	}
	return nil
}

// ownName is the name that an object has or is to have. One that is to be generated is nobody's.
func ownName(r *kind.AdmissionRequest) string {
	if r.Ref.Name == "" && r.Object != nil {
		return r.Object.GetName()
	}
	return r.Ref.Name
}

// nodeRequest is a request of the node.
type nodeRequest struct {
	ctx context.Context
	env kind.Env
	*kind.AdmissionRequest
	node string
}

func (n nodeRequest) lease() error {
	if n.Ref.Namespace != corev1.NamespaceNodeLease {
		return forbid(n.AdmissionRequest, "can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	if ownName(n.AdmissionRequest) != n.node {
		return forbid(n.AdmissionRequest, "can only access node lease with the same name as the requesting node")
	}
	return nil
}

// slice looks at the object itself on create and delete; an update cannot change whose it is, and the authorizer knows whose it was.
func (n nodeRequest) slice() error {
	subject := n.Object
	verb := "create"
	switch n.Operation {
	case admissionv1.Create:
	case admissionv1.Delete:
		subject, verb = n.Old, "delete"
	default:
		return nil
	}
	s, ok := subject.(*resourcev1.ResourceSlice)
	if !ok || s.Spec.NodeName == nil || *s.Spec.NodeName != n.node {
		return forbid(n.AdmissionRequest, "can only %s ResourceSlice with the same NodeName as the requesting node", verb)
	}
	return nil
}

// certificate keeps a node from asking for another node's identity.
func (n nodeRequest) certificate() error {
	csr, ok := n.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || n.Operation != admissionv1.Create || n.Ref.Subresource != "" {
		return nil
	}
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName && csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	request, err := certificates.ParseRequest(csr.Spec.Request)
	if err != nil {
		return forbid(n.AdmissionRequest, "unable to parse csr: %v", err)
	}
	if request.Subject.CommonName != access.NodePrefix+n.node {
		return forbid(n.AdmissionRequest, "can only create a node CSR with CN=%s%s", access.NodePrefix, n.node)
	}
	return nil
}

// claim lets a node report on a claim's size and conditions while it expands the file system, and nothing else.
func (n nodeRequest) claim() error {
	if n.Ref.Subresource != "status" {
		return forbid(n.AdmissionRequest, "may only update PVC status")
	}
	old, ok := n.Old.(*corev1.PersistentVolumeClaim)
	claim, ok2 := n.Object.(*corev1.PersistentVolumeClaim)
	if n.Operation != admissionv1.Update || !ok || !ok2 {
		return forbid(n.AdmissionRequest, "unexpected operation %q", n.Operation)
	}
	if !equality.Semantic.DeepEqual(withoutProgress(old), withoutProgress(claim)) { // in Kubernetes' words
		return forbid(n.AdmissionRequest, "node %q is not allowed to update fields other than status.quantity and status.conditions: %v", n.node, diff.Diff(withoutProgress(old), withoutProgress(claim)))
	}
	return nil
}

func withoutProgress(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c = c.DeepCopy()
	c.ResourceVersion, c.ManagedFields = "", nil
	c.Status.Capacity, c.Status.Conditions = nil, nil
	c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil
	return c
}

// own lets a node register and update itself, but not steer work to itself by taints or protected labels.
func (n nodeRequest) own() error {
	if name := ownName(n.AdmissionRequest); name != n.node {
		return forbid(n.AdmissionRequest, "node %q is not allowed to modify node %q", n.node, name)
	}
	node, ok := n.Object.(*corev1.Node)
	if !ok {
		return nil // a delete: the authorizer does not let nodes do it
	}
	if n.Operation == admissionv1.Create {
		if node.Spec.ConfigSource != nil {
			return forbid(n.AdmissionRequest, "node %q is not allowed to create pods with a non-nil configSource", n.node)
		}
		if labels := protectedLabels(changedLabels(node.Labels, nil)); len(labels) > 0 {
			return forbid(n.AdmissionRequest, "node %q is not allowed to set the following labels: %s", n.node, strings.Join(labels, ", "))
		}
		return nil
	}
	old, ok := n.Old.(*corev1.Node)
	if !ok {
		return forbid(n.AdmissionRequest, "the stored node is not known")
	}
	switch {
	case node.Spec.ConfigSource != nil && !equality.Semantic.DeepEqual(node.Spec.ConfigSource, old.Spec.ConfigSource):
		return forbid(n.AdmissionRequest, "node %q is not allowed to update configSource to a new non-nil configSource", n.node)
	case !equality.Semantic.DeepEqual(node.Spec.Taints, old.Spec.Taints):
		return forbid(n.AdmissionRequest, "node %q is not allowed to modify taints", n.node)
	case !equality.Semantic.DeepEqual(node.OwnerReferences, old.OwnerReferences):
		return forbid(n.AdmissionRequest, "node %q is not allowed to modify ownerReferences", n.node)
	}
	if labels := protectedLabels(changedLabels(node.Labels, old.Labels)); len(labels) > 0 {
		return forbid(n.AdmissionRequest, "is not allowed to modify labels: %s", strings.Join(labels, ", "))
	}
	return nil
}

func changedLabels(now, before map[string]string) []string {
	var out []string
	for k, v := range now {
		if was, ok := before[k]; !ok || was != v {
			out = append(out, k)
		}
	}
	for k := range before {
		if _, ok := now[k]; !ok {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// protectedLabels are those that a node may not touch: all of node-restriction.kubernetes.io, and of Kubernetes' own domains all but
// the ones that describe a node.
func protectedLabels(keys []string) []string {
	var out []string
	for _, key := range keys {
		domain, _, _ := strings.Cut(key, "/")
		if domain == key {
			continue // no domain
		}
		restricted := within(domain, corev1.LabelNamespaceNodeRestriction)
		if restricted || (within(domain, "kubernetes.io") || within(domain, "k8s.io")) && !kubeletapis.IsKubeletLabel(key) {
			out = append(out, key)
		}
	}
	return out
}

func within(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}
