package admission

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/kind"
)

// podNodeSelector binds the pods of a namespace to the nodes that its annotation selects, or else the cluster's default. The configuration can bound
// which labels the pods of a namespace may ask for.
type podNodeSelector struct {
	// cluster are selectors by namespace; that of "clusterDefaultNodeSelector" holds where a namespace has none of its own.
	cluster map[string]string
}

const (
	nodeSelectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"
	defaultNodeSelector    = "clusterDefaultNodeSelector"
)

func (podNodeSelector) Name() string { return "PodNodeSelector" }

func (p podNodeSelector) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := podOf(r, admissionv1.Create)
	if !ok {
		return nil
	}
	wanted, err := p.fitting(ctx, env, r, pod)
	if err != nil {
		return err
	}
	if len(wanted) > 0 {
		pod.Spec.NodeSelector = labels.Merge(wanted, pod.Spec.NodeSelector)
	}
	return nil
}

// fitting is what the pod's namespace selects; a pod that contradicts it is refused.
func (p podNodeSelector) fitting(ctx context.Context, env kind.Env, r *kind.AdmissionRequest, pod *corev1.Pod) (labels.Set, error) {
	ns, err := get[*corev1.Namespace](ctx, env, "", "namespaces", "", r.Ref.Namespace)
	if err != nil {
		return nil, err
	}
	text, own := ns.Annotations[nodeSelectorAnnotation]
	if !own {
		text = p.cluster[defaultNodeSelector]
	}
	wanted, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, forbid(r, "the node selector of namespace %s cannot be read: %v", ns.Name, err)
	}
	if labels.Conflicts(wanted, pod.Spec.NodeSelector) {
		return nil, forbid(r, "pod node label selector conflicts with its namespace node label selector")
	}
	return wanted, nil
}

func (p podNodeSelector) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := podOf(r, admissionv1.Create)
	if !ok {
		return nil
	}
	if _, err := p.fitting(ctx, env, r, pod); err != nil {
		return err
	}
	allowed, err := labels.ConvertSelectorToLabelsMap(p.cluster[r.Ref.Namespace])
	if err != nil {
		return err
	}
	if len(allowed) == 0 {
		return nil
	}
	for key, value := range pod.Spec.NodeSelector {
		if have, ok := allowed[key]; !ok || have != value {
			return forbid(r, "pod node label selector labels conflict with its namespace whitelist")
		}
	}
	return nil
}

// nodeSelectorFile is the plugin's configuration.
type nodeSelectorFile struct {
	Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
}

func (f nodeSelectorFile) check() error {
	for namespace, text := range f.Selectors {
		if _, err := labels.ConvertSelectorToLabelsMap(text); err != nil {
			return fmt.Errorf("podNodeSelectorPluginConfig[%s]: %w", namespace, err)
		}
	}
	return nil
}
