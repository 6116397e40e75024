package admission

import (
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/internal/csimigration"
	"github.com/yare-project/yare/kinds/access"
)

func (n nodeRequest) pod() error {
	switch n.Ref.Subresource {
	case "":
		switch n.Operation {
		case admissionv1.Create:
			return n.mirrorPod()
		case admissionv1.Delete:
			pod, err := n.boundPod(n.Ref.Name)
			if err != nil {
				return err
			}
			if pod.Spec.NodeName != n.node {
				return forbid(n.AdmissionRequest, "node %q can only delete pods with spec.nodeName set to itself", n.node)
			}
			return nil
		}
		return forbid(n.AdmissionRequest, "unexpected operation %q, node %q can only create and delete mirror pods", n.Operation, n.node)
	case "status":
		return n.podStatus()
	case "eviction":
		pod, err := n.boundPod(nameOf(n.AdmissionRequest))
		if err != nil {
			return err
		}
		if n.Operation != admissionv1.Create || pod.Spec.NodeName != n.node {
			return forbid(n.AdmissionRequest, "node %s can only evict pods with spec.nodeName set to itself", n.node)
		}
		return nil
	}
	return forbid(n.AdmissionRequest, "unexpected pod subresource %q, only 'status' and 'eviction' are allowed", n.Ref.Subresource)
}

// boundPod is the stored pod: the one that comes with the request, or else read.
func (n nodeRequest) boundPod(name string) (*corev1.Pod, error) {
	if pod, ok := n.Old.(*corev1.Pod); ok {
		return pod, nil
	}
	pod, err := get[*corev1.Pod](n.ctx, n.env, "", "pods", n.Ref.Namespace, name)
	if err != nil {
		return nil, notFoundOr(n.AdmissionRequest, err)
	}
	return pod, nil
}

// mirrorPod: a node may only create pods that show what it runs by itself, owned by its Node and without a way to anything in the API.
func (n nodeRequest) mirrorPod() error {
	pod, ok := n.Object.(*corev1.Pod)
	if !ok {
		return forbid(n.AdmissionRequest, "unexpected type %T", n.Object)
	}
	if !isMirror(pod) {
		return forbid(n.AdmissionRequest, "pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, n.node)
	}
	if pod.Spec.NodeName != n.node {
		return forbid(n.AdmissionRequest, "node %q can only create pods with spec.nodeName set to itself", n.node)
	}
	if err := n.ownedByNode(pod); err != nil {
		return err
	}
	if what := apiReference(pod); what != "" {
		return forbid(n.AdmissionRequest, "node %q can not create pods that reference %s", n.node, what)
	}
	return nil
}

func (n nodeRequest) ownedByNode(pod *corev1.Pod) error {
	if len(pod.OwnerReferences) > 1 {
		return forbid(n.AdmissionRequest, "node %q can only create pods with a single owner reference set to itself", n.node)
	}
	if len(pod.OwnerReferences) == 0 {
		return forbid(n.AdmissionRequest, "node %q can only create pods with an owner reference set to itself", n.node)
	}
	owner := pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != n.node:
		return forbid(n.AdmissionRequest, "node %q can only create pods with an owner reference set to itself", n.node)
	case owner.Controller == nil || !*owner.Controller:
		return forbid(n.AdmissionRequest, "node %q can only create pods with a controller owner reference set to itself", n.node)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return forbid(n.AdmissionRequest, "node %q must not set blockOwnerDeletion on an owner reference", n.node)
	}
	node, err := get[*corev1.Node](n.ctx, n.env, "", "nodes", "", n.node)
	if err != nil {
		return notFoundOr(n.AdmissionRequest, err)
	}
	if owner.UID != node.UID {
		return forbid(n.AdmissionRequest, "node %s UID mismatch: expected %s got %s", n.node, owner.UID, node.UID)
	}
	return nil
}

// apiReference names what in a pod would give its node access to other objects.
func apiReference(pod *corev1.Pod) string {
	refs := access.PodReferences(pod)
	switch {
	case pod.Spec.ServiceAccountName != "":
		return "serviceaccounts"
	case len(refs.Secrets) > 0:
		return "secrets"
	case len(refs.ConfigMaps) > 0:
		return "configmaps"
	case len(pod.Spec.ResourceClaims) > 0 || len(refs.ResourceClaims) > 0:
		return "resourceclaims"
	}
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			return "persistentvolumeclaims"
		case v.Ephemeral != nil:
			return "persistentvolumeclaims (via ephemeral volumes)"
		case v.CSI != nil:
			return "csidrivers (via CSI volumes)"
		case v.Glusterfs != nil:
			return "endpoints (via glusterFS volumes)"
		case v.Projected == nil:
			continue
		}
		for _, s := range v.Projected.Sources {
			switch {
			case s.ServiceAccountToken != nil:
				return "serviceaccounts (via projected volumes)"
			case s.ClusterTrustBundle != nil:
				return "clustertrustbundles"
			case s.PodCertificate != nil:
				return "podcertificates"
			}
		}
	}
	return ""
}

// podStatus: a node reports on its pods, without changing what selects them or which devices they were given.
func (n nodeRequest) podStatus() error {
	old, ok := n.Old.(*corev1.Pod)
	pod, ok2 := n.Object.(*corev1.Pod)
	if n.Operation != admissionv1.Update || !ok || !ok2 {
		return forbid(n.AdmissionRequest, "unexpected operation %q", n.Operation)
	}
	switch {
	case old.Spec.NodeName != n.node:
		return forbid(n.AdmissionRequest, "node %q can only update pod status for pods with spec.nodeName set to itself", n.node)
	case !equality.Semantic.DeepEqual(old.Labels, pod.Labels):
		return forbid(n.AdmissionRequest, "node %q cannot update labels through pod status", n.node)
	case !equality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses):
		return forbid(n.AdmissionRequest, "node %q cannot update resource claim statues", n.node)
	case !equality.Semantic.DeepEqual(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus):
		return forbid(n.AdmissionRequest, "node %q cannot update extended resource claim status", n.node)
	}
	return nil
}

// token: a node may get tokens for the service accounts of its pods, each bound to the pod, for audiences that the pod asks for.
func (n nodeRequest) token() error {
	request, ok := n.Body.(*authenticationv1.TokenRequest)
	if n.Operation != admissionv1.Create || n.Ref.Subresource != "token" {
		return nil
	}
	if !ok {
		return forbid(n.AdmissionRequest, "unexpected type %T", n.Body)
	}
	ref := request.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return forbid(n.AdmissionRequest, "node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return forbid(n.AdmissionRequest, "node requested token with a pod binding without a uid")
	}
	pod, err := get[*corev1.Pod](n.ctx, n.env, "", "pods", n.Ref.Namespace, ref.Name)
	if err != nil {
		return notFoundOr(n.AdmissionRequest, err)
	}
	if ref.UID != pod.UID {
		return forbid(n.AdmissionRequest, "the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	}
	if pod.Spec.NodeName != n.node {
		return forbid(n.AdmissionRequest, "node requested token bound to a pod scheduled on a different node")
	}
	return n.audience(request, pod)
}

func (n nodeRequest) audience(request *authenticationv1.TokenRequest, pod *corev1.Pod) error {
	wanted := ""
	switch len(request.Spec.Audiences) {
	case 0:
	case 1:
		wanted = request.Spec.Audiences[0]
	default:
		return forbid(n.AdmissionRequest, "node may only request 0 or 1 audiences")
	}
	for i := range pod.Spec.Volumes {
		if n.volumeAsks(pod, &pod.Spec.Volumes[i], wanted) {
			return nil
		}
	}
	decision, _, _ := n.env.Authorize(n.ctx, authorizer.AttributesRecord{
		User: n.User, Verb: "request-serviceaccounts-token-audience", Namespace: n.Ref.Namespace,
		APIVersion: "v1", Resource: wanted, Name: n.Ref.Name, ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	return forbid(n.AdmissionRequest, "audience %q not found in pod spec volume, %s is not authorized to request tokens for this audience", wanted, n.User.GetName())
}

// volumeAsks tells whether a volume needs a token for the audience: by itself, or for its CSI driver.
func (n nodeRequest) volumeAsks(pod *corev1.Pod, v *corev1.Volume, audience string) bool {
	if v.Projected != nil {
		return slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience
		})
	}
	driver := n.driver(pod, v)
	if driver == "" {
		return false
	}
	d, err := get[*storagev1.CSIDriver](n.ctx, n.env, storagev1.GroupName, "csidrivers", "", driver)
	return err == nil && slices.ContainsFunc(d.Spec.TokenRequests, func(t storagev1.TokenRequest) bool { return t.Audience == audience })
}

// driver is the CSI driver of a volume, found through its claim and persistent volume if need be. A volume of an in-tree plugin that was moved to CSI has one, too.
func (n nodeRequest) driver(pod *corev1.Pod, v *corev1.Volume) string {
	name := ""
	switch {
	case v.CSI != nil:
		return v.CSI.Driver
	case v.PersistentVolumeClaim != nil:
		name = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		name = pod.Name + "-" + v.Name
	default:
		return csimigration.Driver(csimigration.PluginOfInline(v))
	}
	claim, err := get[*corev1.PersistentVolumeClaim](n.ctx, n.env, "", "persistentvolumeclaims", pod.Namespace, name)
	if err != nil || claim.Spec.VolumeName == "" {
		return ""
	}
	volume, err := get[*corev1.PersistentVolume](n.ctx, n.env, "", "persistentvolumes", "", claim.Spec.VolumeName)
	if err != nil {
		return ""
	}
	if volume.Spec.CSI == nil {
		return csimigration.Driver(csimigration.PluginOf(volume))
	}
	return volume.Spec.CSI.Driver
}
