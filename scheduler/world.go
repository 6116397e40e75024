package scheduler

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/api/scheduling/v1alpha1"
	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/scheduler/framework"
)

// world is what the scheduler reads of the cluster.
type world struct {
	config    Config
	inbox     *inbox
	claimTick tick

	pods         client.Cache[*corev1.Pod]
	nodes        client.Cache[*corev1.Node]
	namespaces   client.Cache[*corev1.Namespace]
	services     client.Cache[*corev1.Service]
	controllers  client.Cache[*corev1.ReplicationController]
	replicaSets  client.Cache[*appsv1.ReplicaSet]
	statefulSets client.Cache[*appsv1.StatefulSet]
	pdbs         client.Cache[*policyv1.PodDisruptionBudget]
	claims       client.Cache[*corev1.PersistentVolumeClaim]
	volumes      client.Cache[*corev1.PersistentVolume]
	classes      client.Cache[*storagev1.StorageClass]
	csiNodes     client.Cache[*storagev1.CSINode]
	drivers      client.Cache[*storagev1.CSIDriver]
	capacities   client.Cache[*storagev1.CSIStorageCapacity]
	attachments  client.Cache[*storagev1.VolumeAttachment]

	resourceClaims client.Cache[*resourcev1.ResourceClaim]
	slices         client.Cache[*resourcev1.ResourceSlice]
	deviceClasses  client.Cache[*resourcev1.DeviceClass]

	policies  client.Cache[*v1alpha1.SchedulingPolicy] // nil without
	podGroups client.Cache[*schedulingv1alpha2.PodGroup]
}

func newWorld(c Config, in *inbox) *world {
	var all client.CacheOptions
	w := &world{config: c, inbox: in,
		pods: client.CacheOf[*corev1.Pod](c.Caches, all), nodes: client.CacheOf[*corev1.Node](c.Caches, all),
		namespaces: client.CacheOf[*corev1.Namespace](c.Caches, all), services: client.CacheOf[*corev1.Service](c.Caches, all),
		controllers: client.CacheOf[*corev1.ReplicationController](c.Caches, all), replicaSets: client.CacheOf[*appsv1.ReplicaSet](c.Caches, all),
		statefulSets: client.CacheOf[*appsv1.StatefulSet](c.Caches, all), pdbs: client.CacheOf[*policyv1.PodDisruptionBudget](c.Caches, all),
		claims: client.CacheOf[*corev1.PersistentVolumeClaim](c.Caches, all), volumes: client.CacheOf[*corev1.PersistentVolume](c.Caches, all),
		classes: client.CacheOf[*storagev1.StorageClass](c.Caches, all), csiNodes: client.CacheOf[*storagev1.CSINode](c.Caches, all),
		drivers: client.CacheOf[*storagev1.CSIDriver](c.Caches, all), capacities: client.CacheOf[*storagev1.CSIStorageCapacity](c.Caches, all),
		attachments: client.CacheOf[*storagev1.VolumeAttachment](c.Caches, all), resourceClaims: client.CacheOf[*resourcev1.ResourceClaim](c.Caches, all),
		slices: client.CacheOf[*resourcev1.ResourceSlice](c.Caches, all), deviceClasses: client.CacheOf[*resourcev1.DeviceClass](c.Caches, all),
	}
	w.attachments.AddIndex(byNode, func(a *storagev1.VolumeAttachment) []string { return []string{a.Spec.NodeName} })
	if !c.WithoutGroups {
		w.podGroups = client.CacheOf[*schedulingv1alpha2.PodGroup](c.Caches, all)
	}
	if !c.WithoutPolicies {
		w.policies = client.CacheOf[*v1alpha1.SchedulingPolicy](c.Caches, all)
	}
	return w
}

// watch has all changes told to the scheduler.
func (w *world) watch() {
	tell := w.inbox.tell
	w.nodes.OnChange(func(old, new *corev1.Node) {
		name := client.Newest(old, new).Name
		tell(func(s *Scheduler) { s.nodeChanged(new, name) })
	})
	w.namespaces.OnChange(func(old, new *corev1.Namespace) {
		name := client.Newest(old, new).Name
		tell(func(s *Scheduler) {
			if new == nil {
				s.nodes.SetNamespace(name, nil)
				return
			}
			l := labels.Set(new.Labels)
			if l == nil {
				l = labels.Set{}
			}
			epoch := s.nodes.NamespaceEpoch()
			if s.nodes.SetNamespace(name, l); s.nodes.NamespaceEpoch() != epoch {
				s.wake(&framework.Event{Kind: framework.NamespaceChanged, Slot: -1})
			}
		})
	})
	if w.podGroups != nil {
		w.podGroups.OnChange(func(old, new *schedulingv1alpha2.PodGroup) {
			newest := client.Newest(old, new)
			key := types.NamespacedName{Namespace: newest.Namespace, Name: newest.Name}
			tell(func(s *Scheduler) { s.groupChanged(new, key) })
		})
	}
	if w.policies != nil {
		w.policies.OnChange(func(old, new *v1alpha1.SchedulingPolicy) {
			name := client.Newest(old, new).Name
			tell(func(s *Scheduler) { s.policyChanged(new, name) })
		})
	}
	w.pods.OnChange(func(old, new *corev1.Pod) { tell(func(s *Scheduler) { s.podChanged(old, new) }) })
	w.claims.OnChange(func(old, new *corev1.PersistentVolumeClaim) {
		w.claimTick.fire()
		w.woken(framework.ClaimChanged, client.Newest(old, new))
	})
	w.volumes.OnChange(func(old, new *corev1.PersistentVolume) { w.woken(framework.VolumeChanged, client.Newest(old, new)) })
	w.csiNodes.OnChange(func(old, new *storagev1.CSINode) { w.woken(framework.CSINodeChanged, client.Newest(old, new)) })
	w.drivers.OnChange(func(old, new *storagev1.CSIDriver) { w.woken(framework.CapacityChanged, client.Newest(old, new)) })
	w.capacities.OnChange(func(old, new *storagev1.CSIStorageCapacity) {
		w.woken(framework.CapacityChanged, client.Newest(old, new))
	})
	w.attachments.OnChange(func(old, new *storagev1.VolumeAttachment) {
		if new == nil {
			w.woken(framework.AttachmentRemoved, old)
		}
	})
	w.watchDevices()
	w.classes.OnChange(func(old, new *storagev1.StorageClass) {
		w.woken(framework.StorageClassChanged, client.Newest(old, new))
	})
}

func (w *world) woken(kind framework.EventKind, about client.Object) {
	e := &framework.Event{Kind: kind, Slot: -1, Namespace: about.GetNamespace(), Name: about.GetName()}
	w.inbox.tell(func(s *Scheduler) { s.wake(e) })
}

// wait returns once all caches are synced.
func (w *world) wait(ctx context.Context) error {
	all := []<-chan struct{}{w.pods.Synced(), w.nodes.Synced(), w.namespaces.Synced(), w.services.Synced(), w.controllers.Synced(), w.replicaSets.Synced(),
		w.statefulSets.Synced(), w.pdbs.Synced(), w.claims.Synced(), w.volumes.Synced(), w.classes.Synced(), w.csiNodes.Synced(), w.drivers.Synced(), w.capacities.Synced(), w.attachments.Synced(),
		w.resourceClaims.Synced(), w.slices.Synced(), w.deviceClasses.Synced()}
	if w.podGroups != nil {
		all = append(all, w.podGroups.Synced())
	}
	if w.policies != nil {
		all = append(all, w.policies.Synced())
	}
	for _, synced := range all {
		select {
		case <-synced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (w *world) budgets() []*policyv1.PodDisruptionBudget { return w.pdbs.List("") }

// siblings selects the pods that belong together with pod: those of the Services that select it and of its controller. Nil if there are neither.
func (w *world) siblings(pod *corev1.Pod) labels.Selector {
	merged, some := labels.Set{}, false
	for _, svc := range w.services.List(pod.Namespace) {
		if len(svc.Spec.Selector) > 0 && within(svc.Spec.Selector, pod.Labels) {
			merged, some = labels.Merge(merged, svc.Spec.Selector), true
		}
	}
	selector := labels.SelectorFromSet(merged)
	owned, matchLabels := w.ownerSelector(pod)
	if matchLabels != nil {
		return labels.SelectorFromSet(labels.Merge(merged, matchLabels))
	}
	if owned != nil {
		if requirements, selectable := owned.Requirements(); selectable {
			selector, some = selector.Add(requirements...), true
		}
	}
	if !some {
		return nil
	}
	return selector
}

// within tells whether all of a are in b.
func within(a, b map[string]string) bool {
	for k, v := range a {
		if got, ok := b[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// ownerSelector is the selector of pod's controller; of a ReplicationController it is a set of labels.
func (w *world) ownerSelector(pod *corev1.Pod) (labels.Selector, labels.Set) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return nil, nil
	}
	var s *metav1.LabelSelector
	switch owner.Kind {
	case "ReplicationController":
		if o, ok := w.controllers.Get(pod.Namespace, owner.Name); ok && o.UID == owner.UID {
			return nil, o.Spec.Selector
		}
	case "ReplicaSet":
		if o, ok := w.replicaSets.Get(pod.Namespace, owner.Name); ok && o.UID == owner.UID {
			s = o.Spec.Selector
		}
	case "StatefulSet":
		if o, ok := w.statefulSets.Get(pod.Namespace, owner.Name); ok && o.UID == owner.UID {
			s = o.Spec.Selector
		}
	}
	if s == nil {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, nil // the API refuses such selectors
	}
	return selector, nil
}
