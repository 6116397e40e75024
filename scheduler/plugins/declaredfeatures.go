package plugins

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	ndftypes "k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/yare-project/yare/scheduler/framework"
)

// NodeDeclaredFeatures is the plugin's name.
const NodeDeclaredFeatures = "NodeDeclaredFeatures"

// declaredFeatures keeps pods from nodes that don't declare, in status.declaredFeatures, what the pods' specs need of them.
type declaredFeatures struct{ served *version.Version } // the version of Kubernetes: features that all its nodes have are not asked for

var lacksFeature = framework.Refuse(framework.Unresolvable, NodeDeclaredFeatures, "node(s) didn't match Pod's required features")

func newDeclaredFeatures(args []byte, _ *framework.Handle) (framework.Plugin, error) {
	return declaredFeatures{version.MajorMinor(1, 36)}, decode(args, NodeDeclaredFeatures, &struct {
		metav1.TypeMeta `json:",inline"`
	}{})
}

func (declaredFeatures) Name() string                 { return NodeDeclaredFeatures }
func (declaredFeatures) FilterScope() framework.Scope { return framework.OnCluster }

// needs lists the features that a pod can't do without; nil for most.
func (p declaredFeatures) needs(pod *framework.Pod) (names []string) {
	info := ndftypes.PodInfo{Spec: &pod.Object.Spec}
	for _, f := range features.AllFeatures {
		if last := f.MaxVersion(); (last == nil || !p.served.GreaterThan(last)) && f.InferForScheduling(&info) {
			names = append(names, f.Name())
		}
	}
	return names
}

func (p declaredFeatures) PreFilter(c *framework.Cycle) *framework.Status {
	names := p.needs(c.Pod)
	if len(names) == 0 {
		return skipFilter
	}
	c.Put(NodeDeclaredFeatures, names)
	return nil
}

func (declaredFeatures) Filter(c *framework.Cycle, i int) *framework.Status {
	names, _ := c.Get(NodeDeclaredFeatures).([]string)
	if len(undeclared(names, c.Nodes.Object[i].Status.DeclaredFeatures)) > 0 {
		return lacksFeature
	}
	return nil
}

// undeclared lists what of names is not declared.
func undeclared(names, declared []string) (out []string) {
	for _, name := range names {
		if !slices.Contains(declared, name) {
			out = append(out, name)
		}
	}
	return out
}

func (declaredFeatures) Events() framework.EventKind {
	return framework.NodeAdded | framework.NodeOther | framework.SelfChanged
}

func (p declaredFeatures) Helps(pod *framework.Pod, e *framework.Event) bool {
	return e.Node == nil || len(undeclared(p.needs(pod), e.Node.Status.DeclaredFeatures)) == 0
}

// Remedies names what the node does not declare.
func (p declaredFeatures) Remedies(c *framework.Cycle, i int, _ *framework.Status) []framework.Remedy {
	if i < 0 {
		return nil
	}
	var out []framework.Remedy
	for _, name := range undeclared(p.needs(c.Pod), c.Nodes.Object[i].Status.DeclaredFeatures) {
		out = append(out, framework.Remedy{Kind: framework.OtherCondition, Plugin: NodeDeclaredFeatures, Name: name, Do: "feature " + name + " on node " + c.Nodes.Name[i]})
	}
	return out
}
