package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// claim explains a PersistentVolumeClaim.
func claim(f Facts, c *corev1.PersistentVolumeClaim) Report {
	r := Report{Object: "persistentvolumeclaim/" + c.Name, Steps: append([]Step{created(c)}, eventSteps(f.Events)...), State: string(c.Status.Phase)}
	switch {
	case c.DeletionTimestamp != nil:
		deleted(&r, c, f.Now)
		if users := userNames(f, c); slices.Contains(c.Finalizers, "kubernetes.io/pvc-protection") && users != "" {
			r.Waits = []Wait{{Loop: "volume protection controller", For: "the end of the pods that use it: " + users}}
		}
	case c.Status.Phase == corev1.ClaimBound:
		r.State = "bound to volume " + c.Spec.VolumeName
	case c.Status.Phase == corev1.ClaimLost:
		r.State = "lost: volume " + c.Spec.VolumeName + " is gone"
	default:
		r.State = "unbound for " + age(f.Now.Sub(c.CreationTimestamp.Time))
		r.Waits = claimWait(f, c, false)
	}
	return r
}

const (
	selectedNode  = "volume.kubernetes.io/selected-node"
	noProvisioner = "kubernetes.io/no-provisioner"
)

// claimWait says who must act for an unbound claim. used tells that a pod which waits for it is asked about.
func claimWait(f Facts, c *corev1.PersistentVolumeClaim, used bool) []Wait {
	since := c.CreationTimestamp.Time
	controller := Wait{Loop: "persistent volume controller", Since: &since}
	size := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if c.Spec.VolumeName != "" {
		controller.For = fmt.Sprintf("volume %s, which the claim names, to be free for it", c.Spec.VolumeName)
		return []Wait{controller}
	}
	if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName == "" {
		controller.For = fmt.Sprintf("a free volume of %s without a class; nobody makes one", size.String())
		controller.Changes = []string{"such a persistentvolume", "a storage class for the claim"}
		return []Wait{controller}
	}
	name := *c.Spec.StorageClassName
	class := f.Classes[name]
	switch {
	case class == nil:
		controller.For = fmt.Sprintf("storage class %s, which does not exist, or a free volume of that class", name)
		controller.Changes = []string{"storage class " + name + " created"}
	case waitsForPod(class) && c.Annotations[selectedNode] == "":
		if used {
			return nil // the pod's own wait says it
		}
		w := Wait{Loop: "scheduler", Since: &since, For: "the first pod that uses the claim to get a node: class " + name + " binds then"}
		if users := userNames(f, c); users != "" {
			w.Next = "ask: yare why pod/" + strings.Split(users, ", ")[0]
		} else {
			w.Changes = []string{"a pod that uses the claim; there is none"}
		}
		return []Wait{w}
	case class.Provisioner == noProvisioner:
		controller.For = fmt.Sprintf("a free volume of %s and class %s; nobody makes one", size.String(), name)
		controller.Changes = []string{"such a persistentvolume"}
	default:
		controller.Loop = "provisioner " + class.Provisioner
		controller.For = fmt.Sprintf("its own work: a volume of %s", size.String())
		if e := latest(f.Events, "ProvisioningFailed"); e != nil {
			controller.For = "another try; it failed: " + brief(e.Message)
		}
	}
	return []Wait{controller}
}

func waitsForPod(c *storagev1.StorageClass) bool {
	return c.VolumeBindingMode != nil && *c.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// userNames lists the pods that use a claim.
func userNames(f Facts, c *corev1.PersistentVolumeClaim) string {
	var out []string
	for _, p := range f.Pods {
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == c.Name || v.Ephemeral != nil && p.Name+"-"+v.Name == c.Name {
				out = append(out, p.Name)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}

// node explains a Node.
func node(f Facts, n *corev1.Node) Report {
	r := Report{Object: "node/" + n.Name, Steps: append([]Step{created(n)}, eventSteps(f.Events)...), State: "not ready"}
	for _, c := range n.Status.Conditions {
		at := c.LastTransitionTime.Time
		switch {
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue:
			r.State = "ready for " + age(f.Now.Sub(at))
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown:
			r.Waits = append(r.Waits, Wait{Loop: "node agent of " + n.Name, For: fmt.Sprintf("nothing that is known: not heard of since %s (%s)", c.LastHeartbeatTime.UTC().Format("15:04:05 MST"), brief(c.Message)), Since: &at,
				Changes: []string{"the agent running and able to reach the API server"}})
		case c.Type == corev1.NodeReady:
			r.Waits = append(r.Waits, Wait{Loop: "node agent of " + n.Name, For: c.Reason + ": " + brief(c.Message), Since: &at})
		case c.Status == corev1.ConditionTrue:
			r.Waits = append(r.Waits, Wait{Loop: "node agent of " + n.Name, For: fmt.Sprintf("%s to end: %s", c.Type, brief(c.Message)), Since: &at})
		}
	}
	if n.Spec.Unschedulable {
		r.State += ", cordoned"
		r.Waits = append(r.Waits, Wait{Loop: "whoever cordoned the node", For: "kubectl uncordon " + n.Name})
	}
	for _, t := range n.Spec.Taints {
		r.State += ", taint " + t.ToString()
	}
	if n.DeletionTimestamp != nil {
		deleted(&r, n, f.Now)
	}
	running := 0
	for _, p := range f.Pods {
		if p.Status.Phase == corev1.PodRunning {
			running++
		}
	}
	r.State += fmt.Sprintf(", %s running there", times(running, "pod"))
	return r
}
