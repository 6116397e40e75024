package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"

	"github.com/yare-project/yare/internal/version"
	"github.com/yare-project/yare/kind"
)

// because adds a cause by which programs tell why a request was refused.
func because(err error, cause metav1.CauseType) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) && status.ErrStatus.Details != nil {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}

// elsewhere tells a request about something in a namespace, which is not the namespace itself.
func inNamespace(r *kind.AdmissionRequest) bool {
	return r.Ref.Namespace != "" && (r.Ref.Group != "" || r.Ref.Resource != "namespaces")
}

// namespaceProvision makes the namespace into which something is to be created, if there is none.
type namespaceProvision struct {
	create func(ctx context.Context, name string) error
}

func (namespaceProvision) Name() string { return "NamespaceAutoProvision" }

func (p namespaceProvision) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if r.DryRun || r.Operation != admissionv1.Create || !inNamespace(r) {
		return nil
	}
	_, err := get[*corev1.Namespace](ctx, env, "", "namespaces", "", r.Ref.Namespace)
	if apierrors.IsNotFound(err) {
		if err = p.create(ctx, r.Ref.Namespace); apierrors.IsAlreadyExists(err) {
			err = nil
		}
	}
	if err != nil {
		return forbid(r, "%w", err)
	}
	return nil
}

// namespaceExists refuses what is about a namespace that does not exist, deletions too.
type namespaceExists struct{}

func (namespaceExists) Name() string { return "NamespaceExists" }

func (namespaceExists) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if r.Operation == admissionv1.Connect || !inNamespace(r) {
		return nil
	}
	_, err := get[*corev1.Namespace](ctx, env, "", "namespaces", "", r.Ref.Namespace)
	return err
}

// denyExternalIPs keeps Services from taking traffic to addresses that their owners name: anybody's address could be.
type denyExternalIPs struct{}

func (denyExternalIPs) Name() string { return "DenyServiceExternalIPs" }

func (denyExternalIPs) Validate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	service, ok := r.Object.(*corev1.Service)
	if !ok || !on(r, "", "services", admissionv1.Create, admissionv1.Update) {
		return nil
	}
	old, _ := r.Old.(*corev1.Service)
	for _, ip := range service.Spec.ExternalIPs {
		if old == nil || !slices.Contains(old.Spec.ExternalIPs, ip) {
			return forbid(r, "Use of external IPs is denied by admission control")
		}
	}
	return nil
}

// alwaysDeny refuses everything.
type alwaysDeny struct{}

func (alwaysDeny) Name() string { return "AlwaysDeny" }

func (alwaysDeny) Mutate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	return forbid(r, "admission control is denying all modifications")
}

// declaredFeatures refuses a change of a running pod that needs a feature which its node has not declared (KEP-5328).
type declaredFeatures struct{}

func (declaredFeatures) Name() string { return "NodeDeclaredFeatureValidator" }

func (declaredFeatures) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, isPod := r.Object.(*corev1.Pod)
	old, wasPod := r.Old.(*corev1.Pod)
	sub := r.Ref.Subresource
	if !isPod || !wasPod || !onSub(r, "", "pods", sub, admissionv1.Update) || sub != "" && sub != "resize" || pod.Spec.NodeName == "" || old.Generation == pod.Generation {
		return nil
	}
	serves, err := utilversion.Parse(version.Kubernetes)
	if err != nil {
		return err
	}
	framework := nodedeclaredfeatures.DefaultFramework
	needs, err := framework.InferForPodUpdate(&nodedeclaredfeatures.PodInfo{Spec: &old.Spec, Status: &old.Status}, &nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, serves)
	if err != nil {
		return forbid(r, "failed to infer pod capability requirements: %w", err)
	}
	if needs.IsEmpty() {
		return nil
	}
	node, err := nodeFor(ctx, env, r, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	result, err := framework.MatchNode(needs, node)
	if err != nil {
		return forbid(r, "failed to match pod requirements against node %q: %w", node.Name, err)
	}
	if !result.IsMatch {
		return forbid(r, "pod update requires features %s which are not available on node %q", strings.Join(result.UnsatisfiedRequirements, ", "), node.Name)
	}
	return nil
}

// errNoProvision says that the server was built without what a plugin needs.
var errNoProvision = fmt.Errorf("admission plugin %s: this server cannot make namespaces", namespaceProvision{}.Name())
