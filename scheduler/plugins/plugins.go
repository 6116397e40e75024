// Package plugins holds the scheduler's own plugins: one file each, with the rules, texts and default arguments of Kubernetes 1.36, so that a user finds in events
// and conditions what the documentation says.
//
// Plugins keep no state of their own but their arguments. They judge by framework.Nodes and by what they prepare in a cycle.
package plugins

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/scheduler/framework"
)

// Names of the plugins.
const (
	PrioritySort       = "PrioritySort"
	SchedulingGates    = "SchedulingGates"
	NodeUnschedulable  = "NodeUnschedulable"
	NodeName           = "NodeName"
	TaintToleration    = "TaintToleration"
	NodeAffinity       = "NodeAffinity"
	NodePorts          = "NodePorts"
	NodeResourcesFit   = "NodeResourcesFit"
	BalancedAllocation = "NodeResourcesBalancedAllocation"
	ImageLocality      = "ImageLocality"
	DefaultBinder      = "DefaultBinder"
	DynamicResources   = "DynamicResources" // of scheduler/dra
	GangScheduling     = "GangScheduling"
)

// Registry maps the name of each plugin to what makes it.
func Registry() map[string]framework.Factory {
	return map[string]framework.Factory{
		PrioritySort:       plain(prioritySort{}),
		SchedulingGates:    plain(gates{}),
		NodeUnschedulable:  plain(unschedulable{}),
		NodeName:           plain(nodeName{}),
		TaintToleration:    plain(taints{}),
		NodeAffinity:       newAffinity,
		NodePorts:          plain(ports{}),
		NodeResourcesFit:   newFit,
		BalancedAllocation: newBalanced,
		ImageLocality:      newImages,
		DefaultBinder:      newBinder,
		GangScheduling:     newGang,
		PodTopologySpread:  newSpread,
		InterPodAffinity:   newPodAffinity,
		DefaultPreemption:  newPreemption,
		VolumeBinding:      newVolumeBinding,

		NodeDeclaredFeatures: newDeclaredFeatures,
		VolumeRestrictions:   withVolumes(VolumeRestrictions, func(h *framework.Handle) framework.Plugin { return &volumeRestrictions{h} }),
		NodeVolumeLimits:     withVolumes(NodeVolumeLimits, func(h *framework.Handle) framework.Plugin { return &volumeLimits{h: h} }),
		VolumeZone:           withVolumes(VolumeZone, func(h *framework.Handle) framework.Plugin { return &volumeZone{h} }),
	}
}

// Default is the order and weight of the plugins that are on unless a profile says otherwise; weight 0 means that the plugin does not score.
func Default() []struct {
	Name   string
	Weight int32
} {
	return []struct {
		Name   string
		Weight int32
	}{
		{SchedulingGates, 0}, {PrioritySort, 0}, {NodeUnschedulable, 0}, {NodeName, 0}, {TaintToleration, 3}, {NodeAffinity, 2}, {NodePorts, 0}, {NodeResourcesFit, 1},
		{VolumeRestrictions, 0}, {NodeVolumeLimits, 0}, {VolumeBinding, 0}, {VolumeZone, 0}, {PodTopologySpread, 2}, {InterPodAffinity, 2}, {DynamicResources, 2}, {DefaultPreemption, 0}, {BalancedAllocation, 1}, {ImageLocality, 1}, {DefaultBinder, 0},
		{NodeDeclaredFeatures, 0}, {GangScheduling, 0},
	}
}

// plain makes a factory for a plugin without arguments.
func plain(p framework.Plugin) framework.Factory {
	return func(args []byte, _ *framework.Handle) (framework.Plugin, error) {
		if err := decode(args, p.Name(), &struct {
			metav1.TypeMeta `json:",inline"`
		}{}); err != nil {
			return nil, err
		}
		return p, nil
	}
}

// decode reads arguments strictly: what is not known is refused.
func decode(args []byte, plugin string, into any) error {
	if len(args) == 0 {
		return nil
	}
	var t metav1.TypeMeta
	if err := json.Unmarshal(args, &t); err != nil {
		return fmt.Errorf("arguments of plugin %s: %w", plugin, err)
	}
	if t.Kind != "" && t.Kind != plugin+"Args" {
		return fmt.Errorf("arguments of plugin %s are of kind %q; want %q", plugin, t.Kind, plugin+"Args")
	}
	if t.APIVersion != "" && t.APIVersion != "kubescheduler.config.k8s.io/v1" {
		return fmt.Errorf("arguments of plugin %s have apiVersion %q; want kubescheduler.config.k8s.io/v1", plugin, t.APIVersion)
	}
	if err := yaml.UnmarshalStrict(args, into); err != nil {
		return fmt.Errorf("arguments of plugin %s: %w", plugin, err)
	}
	return nil
}
