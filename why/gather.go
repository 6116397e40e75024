package why

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/yare-project/yare/scheduler"
)

// Config is what Gather needs.
type Config struct {
	API kubernetes.Interface
	// Ask gets a path of the API server that is no resource, such as scheduler.DebugPath; nil leaves out what only the server itself knows.
	Ask func(ctx context.Context, path string) ([]byte, error)
	Now time.Time
}

// Kinds lists the names by which ParseObject knows kinds, one for each.
func Kinds() []string {
	return []string{"pod", "deployment", "replicaset", "statefulset", "daemonset", "job", "podgroup", "pvc", "node"}
}

var kinds = map[string]string{
	"pod": "pod", "pods": "pod", "po": "pod", "deployment": "deployment", "deployments": "deployment", "deploy": "deployment",
	"replicaset": "replicaset", "replicasets": "replicaset", "rs": "replicaset", "statefulset": "statefulset", "statefulsets": "statefulset", "sts": "statefulset",
	"daemonset": "daemonset", "daemonsets": "daemonset", "ds": "daemonset", "job": "job", "jobs": "job",
	"podgroup": "podgroup", "podgroups": "podgroup",
	"pvc": "pvc", "persistentvolumeclaim": "pvc", "persistentvolumeclaims": "pvc", "node": "node", "nodes": "node", "no": "node",
	"namespace": "namespace", "namespaces": "namespace", "ns": "namespace",
}

// ParseObject reads KIND/NAME, or KIND NAME, with kubectl's names for kinds.
func ParseObject(args ...string) (kind, name string, err error) {
	kind, name, ok := strings.Cut(strings.Join(args, "/"), "/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q: say which object, as KIND/NAME, such as pod/web-0", strings.Join(args, " "))
	}
	kind, _, _ = strings.Cut(kind, ".") // deployments.apps
	full, ok := kinds[strings.ToLower(kind)]
	if !ok {
		return "", "", fmt.Errorf("%q is no kind that can be explained: use one of %s", kind, strings.Join(Kinds(), ", "))
	}
	return full, name, nil
}

// Gather reads what there is to know of an object.
func Gather(ctx context.Context, c Config, kind, namespace, name string) (Facts, error) {
	g := &gatherer{Config: c, ctx: ctx, namespace: namespace, f: Facts{Now: c.Now, Classes: map[string]*storagev1.StorageClass{}}}
	if err := g.object(kind, name); err != nil {
		return Facts{}, err
	}
	g.f.Events = g.events(g.f.Object.GetUID(), name)
	switch o := g.f.Object.(type) {
	case *corev1.Pod:
		g.pod(o)
	case *corev1.PersistentVolumeClaim:
		g.class(o)
		g.f.Pods = g.pods(nil)
	case *corev1.Node:
		g.f.Pods = g.podsOn(o.Name)
	case *appsv1.Deployment:
		g.sets(o)
		g.owned(o.Spec.Selector)
	case *appsv1.ReplicaSet:
		g.owned(o.Spec.Selector)
	case *appsv1.StatefulSet:
		g.owned(o.Spec.Selector)
	case *appsv1.DaemonSet:
		g.owned(o.Spec.Selector)
	case *batchv1.Job:
		g.owned(o.Spec.Selector)
	case *schedulingv1alpha2.PodGroup:
		g.members(o.Name)
	}
	return g.f, nil
}

type gatherer struct {
	Config
	ctx       context.Context
	namespace string
	f         Facts
}

// note records a question that was not answered; what is not there is an answer.
func (g *gatherer) note(what string, err error) bool {
	if err != nil && !apierrors.IsNotFound(err) {
		g.f.Unknown = append(g.f.Unknown, what+": "+err.Error())
	}
	return err == nil
}

func (g *gatherer) object(kind, name string) error {
	var o metav1.Object
	var err error
	get := metav1.GetOptions{}
	core, apps := g.API.CoreV1(), g.API.AppsV1()
	switch kind {
	case "pod":
		o, err = core.Pods(g.namespace).Get(g.ctx, name, get)
	case "pvc":
		o, err = core.PersistentVolumeClaims(g.namespace).Get(g.ctx, name, get)
	case "node":
		g.namespace = ""
		o, err = core.Nodes().Get(g.ctx, name, get)
	case "namespace":
		g.namespace = ""
		o, err = core.Namespaces().Get(g.ctx, name, get)
	case "deployment":
		o, err = apps.Deployments(g.namespace).Get(g.ctx, name, get)
	case "replicaset":
		o, err = apps.ReplicaSets(g.namespace).Get(g.ctx, name, get)
	case "statefulset":
		o, err = apps.StatefulSets(g.namespace).Get(g.ctx, name, get)
	case "daemonset":
		o, err = apps.DaemonSets(g.namespace).Get(g.ctx, name, get)
	case "job":
		o, err = g.API.BatchV1().Jobs(g.namespace).Get(g.ctx, name, get)
	case "podgroup":
		o, err = g.API.SchedulingV1alpha2().PodGroups(g.namespace).Get(g.ctx, name, get)
	default:
		return fmt.Errorf("%q is no kind that can be explained", kind)
	}
	if err != nil {
		return fmt.Errorf("%s/%s: %w", kind, name, err)
	}
	g.f.Object = o
	return nil
}

// events about an object, oldest first. Node agents name nodes, not their uids, in events about nodes.
func (g *gatherer) events(uid types.UID, name string) []corev1.Event {
	list, err := g.API.CoreV1().Events(g.namespace).List(g.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if !g.note("events", err) {
		return nil
	}
	out := slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.Name != name || e.InvolvedObject.UID != uid && (e.InvolvedObject.Kind != "Node" || g.namespace != "")
	})
	sortEvents(out)
	return out
}

func sortEvents(list []corev1.Event) {
	slices.SortStableFunc(list, func(a, b corev1.Event) int {
		x, _, _ := when(&a)
		y, _, _ := when(&b)
		return x.Compare(y)
	})
}

func (g *gatherer) pod(p *corev1.Pod) {
	if p.Spec.NodeName != "" {
		n, err := g.API.CoreV1().Nodes().Get(g.ctx, p.Spec.NodeName, metav1.GetOptions{})
		if g.note("node "+p.Spec.NodeName, err) {
			g.f.Node = n
		}
		g.f.NodeGone = apierrors.IsNotFound(err)
	} else {
		g.scheduler(p)
	}
	for _, v := range p.Spec.Volumes {
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = p.Name + "-" + v.Name
		default:
			continue
		}
		c, err := g.API.CoreV1().PersistentVolumeClaims(g.namespace).Get(g.ctx, name, metav1.GetOptions{})
		if g.note("claim "+name, err) {
			g.f.Claims = append(g.f.Claims, c)
			g.class(c)
		}
	}
}

// scheduler asks the server what it knows. A server that is no Yare has no such path, and not everybody may ask.
func (g *gatherer) scheduler(p *corev1.Pod) {
	if g.Ask == nil || len(p.Spec.SchedulingGates) > 0 {
		return
	}
	body, err := g.Ask(g.ctx, scheduler.DebugPath+p.Namespace+"/"+p.Name)
	if apierrors.IsForbidden(err) {
		g.f.Unknown = append(g.f.Unknown, "the scheduler's own account: not allowed; it needs a role for the nonResourceURL "+scheduler.DebugPath+"*")
		return
	}
	var w scheduler.Waiting
	if g.note("the scheduler's own account", err) && json.Unmarshal(body, &w) == nil {
		g.f.Scheduler = &w
	}
}

func (g *gatherer) class(c *corev1.PersistentVolumeClaim) {
	if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName == "" {
		return
	}
	s, err := g.API.StorageV1().StorageClasses().Get(g.ctx, *c.Spec.StorageClassName, metav1.GetOptions{})
	if g.note("storage class "+*c.Spec.StorageClassName, err) {
		g.f.Classes[s.Name] = s
	}
}

func (g *gatherer) pods(selector *metav1.LabelSelector) []*corev1.Pod {
	opts := metav1.ListOptions{}
	if selector != nil {
		opts.LabelSelector = metav1.FormatLabelSelector(selector)
	}
	list, err := g.API.CoreV1().Pods(g.namespace).List(g.ctx, opts)
	if !g.note("pods", err) {
		return nil
	}
	var out []*corev1.Pod
	for k := range list.Items {
		out = append(out, &list.Items[k])
	}
	return out
}

func (g *gatherer) podsOn(node string) []*corev1.Pod {
	list, err := g.API.CoreV1().Pods("").List(g.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if !g.note("pods", err) {
		return nil
	}
	var out []*corev1.Pod
	for k := range list.Items {
		if list.Items[k].Spec.NodeName == node {
			out = append(out, &list.Items[k])
		}
	}
	return out
}

// owned reads the pods that the object controls, directly or through its ReplicaSets, and what is said about them.
func (g *gatherer) owned(selector *metav1.LabelSelector) {
	if selector == nil {
		return
	}
	owners := map[types.UID]bool{g.f.Object.GetUID(): true}
	for _, s := range g.f.Sets {
		owners[s.UID] = true
	}
	mine := map[types.UID]bool{}
	for _, p := range g.pods(selector) {
		if o := metav1.GetControllerOf(p); o != nil && owners[o.UID] {
			g.f.Pods, mine[p.UID] = append(g.f.Pods, p), true
		}
	}
	list, err := g.API.CoreV1().Events(g.namespace).List(g.ctx, metav1.ListOptions{})
	if !g.note("events of its pods", err) {
		return
	}
	for _, e := range list.Items {
		if uid := e.InvolvedObject.UID; mine[uid] || owners[uid] && uid != g.f.Object.GetUID() {
			g.f.Parts = append(g.f.Parts, e)
		}
	}
	sortEvents(g.f.Parts)
}

// sets reads the ReplicaSets of a Deployment that have or want pods.
func (g *gatherer) sets(d *appsv1.Deployment) {
	list, err := g.API.AppsV1().ReplicaSets(g.namespace).List(g.ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
	if !g.note("replicasets", err) {
		return
	}
	for k := range list.Items {
		if s := &list.Items[k]; metav1.IsControlledBy(s, d) && (s.Status.Replicas > 0 || replicas(s.Spec.Replicas) > 0) {
			g.f.Sets = append(g.f.Sets, s)
		}
	}
}
