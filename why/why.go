// Package why says, from outside, what an object went through and which loop it waits for now.
//
// [Gather] reads what the API tells of an object: itself, its events, its pods, claims and node, and, where the server serves it, what the scheduler knows of
// a pod without a node. [Explain] turns that into a [Report]; it is a pure function, reads no clock and works on what any Kubernetes API server says. Times in the
// API are whole seconds, so durations are too. It only reads, and one request that is refused costs a line of the report, not the report.
//
// It explains pods in detail and Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, PodGroups, PersistentVolumeClaims, Nodes and Namespaces briefly: of the pods behind them it says
// what they wait for and which to ask about next.
package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/scheduler"
)

// Report is the answer.
type Report struct {
	Object    string `json:"object"` // kind/name
	Namespace string `json:"namespace,omitempty"`
	State     string `json:"state"`           // in a few words
	Steps     []Step `json:"steps"`           // what happened, oldest first
	Waits     []Wait `json:"waits,omitempty"` // who is waited for; empty if nobody is
	// Unknown are questions that the API server did not answer.
	Unknown []string `json:"unknown,omitempty"`
}

// Step is one thing that happened.
type Step struct {
	At   time.Time     `json:"at"`
	Took time.Duration `json:"took"` // nanoseconds since the step before; whole seconds
	By   string        `json:"by"`
	What string        `json:"what"`
}

// Wait is a loop that must act, and what for its part it waits for.
type Wait struct {
	Loop    string     `json:"loop"`
	For     string     `json:"for"`
	Changes []string   `json:"changes,omitempty"` // what would let it go on, the smallest first
	Since   *time.Time `json:"since,omitempty"`
	Next    string     `json:"next,omitempty"` // when or upon what it looks again
}

// Facts are what the API says.
type Facts struct {
	Now    time.Time
	Object metav1.Object  // of one of the types that Explain knows
	Events []corev1.Event // about the object
	Parts  []corev1.Event // about the pods and ReplicaSets of a workload

	Node      *corev1.Node                    // of a pod
	NodeGone  bool                            // the pod's node does not exist
	Claims    []*corev1.PersistentVolumeClaim // of a pod
	Classes   map[string]*storagev1.StorageClass
	Pods      []*corev1.Pod        // of a workload, claim or node
	Sets      []*appsv1.ReplicaSet // of a Deployment
	Scheduler *scheduler.Waiting   // of a pod; nil if the server does not tell
	Unknown   []string
}

// Explain makes the report. An object of a type that it does not know gets one without waits.
func Explain(f Facts) Report {
	var r Report
	switch o := f.Object.(type) {
	case *corev1.Pod:
		r = pod(f, o)
	case *appsv1.Deployment:
		r = deployment(f, o)
	case *appsv1.ReplicaSet:
		r = workload(f, counts{kind: "replicaset", loop: "replicaset controller", want: replicas(o.Spec.Replicas), ready: o.Status.ReadyReplicas, exist: o.Status.Replicas, observed: o.Status.ObservedGeneration})
	case *appsv1.StatefulSet:
		r = workload(f, counts{kind: "statefulset", loop: "statefulset controller", want: replicas(o.Spec.Replicas), ready: o.Status.ReadyReplicas, exist: o.Status.Replicas, observed: o.Status.ObservedGeneration, ordered: o.Spec.PodManagementPolicy != appsv1.ParallelPodManagement})
	case *appsv1.DaemonSet:
		r = workload(f, counts{kind: "daemonset", loop: "daemonset controller", want: o.Status.DesiredNumberScheduled, ready: o.Status.NumberReady, exist: o.Status.CurrentNumberScheduled, observed: o.Status.ObservedGeneration})
	case *batchv1.Job:
		r = job(f, o)
	case *schedulingv1alpha2.PodGroup:
		r = podGroup(f, o)
	case *corev1.PersistentVolumeClaim:
		r = claim(f, o)
	case *corev1.Node:
		r = node(f, o)
	case *corev1.Namespace:
		r = namespace(f, o)
	}
	r.Namespace, r.Unknown = f.Object.GetNamespace(), f.Unknown
	slices.SortStableFunc(r.Steps, func(a, b Step) int { return a.At.Compare(b.At) })
	for k := 1; k < len(r.Steps); k++ {
		r.Steps[k].Took = r.Steps[k].At.Sub(r.Steps[k-1].At)
	}
	return r
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// created is the first step of any object.
func created(o metav1.Object) Step {
	by := "a client"
	if owner := metav1.GetControllerOf(o); owner != nil {
		by = strings.ToLower(owner.Kind) + "/" + owner.Name
	} else if manager := creator(o); manager != "" {
		by = manager
	}
	return Step{At: o.GetCreationTimestamp().Time, By: by, What: "created"}
}

// creator is the field manager of the first write.
func creator(o metav1.Object) string {
	best := metav1.ManagedFieldsEntry{}
	for _, m := range o.GetManagedFields() {
		if m.Subresource == "" && m.Time != nil && (best.Time == nil || m.Time.Before(best.Time)) {
			best = m
		}
	}
	return best.Manager
}

// deleted adds that an object is being deleted, and who keeps it.
func deleted(r *Report, o metav1.Object, now time.Time) {
	at := o.GetDeletionTimestamp()
	if at == nil {
		return
	}
	asked := at.Time
	if g := o.GetDeletionGracePeriodSeconds(); g != nil {
		asked = asked.Add(-time.Duration(*g) * time.Second)
	}
	r.Steps = append(r.Steps, Step{At: asked, By: "a client", What: "deletion asked for"})
	if f := o.GetFinalizers(); len(f) > 0 {
		r.Waits = append(r.Waits, Wait{Loop: "the owner of finalizer " + strings.Join(f, ", "), For: "what it has to clean up before the object may go", Since: &asked})
	}
	r.State = "being deleted for " + age(now.Sub(asked))
}

// when is the time of an event's first and last sighting.
func when(e *corev1.Event) (first, last time.Time, count int32) {
	first, last, count = e.FirstTimestamp.Time, e.LastTimestamp.Time, max(e.Count, 1)
	if first.IsZero() {
		first = e.EventTime.Time
	}
	if e.Series != nil {
		last, count = e.Series.LastObservedTime.Time, max(count, e.Series.Count)
	}
	if first.IsZero() {
		first = e.CreationTimestamp.Time
	}
	if last.Before(first) {
		last = first
	}
	return first, last, count
}

// eventSteps are the events as they are, for objects about which no more is known. Those that came again are one step.
func eventSteps(events []corev1.Event, skip ...string) []Step {
	var out []Step
	for k := range events {
		e := &events[k]
		if slices.Contains(skip, e.Reason) {
			continue
		}
		first, last, count := when(e)
		s := Step{At: first, By: source(e), What: e.Reason + ": " + brief(e.Message)}
		if count > 1 {
			s.What += fmt.Sprintf(" (%d times, last %s later)", count, age(last.Sub(first)))
		}
		out = append(out, s)
	}
	return out
}

func source(e *corev1.Event) string {
	for _, name := range []string{e.Source.Component, e.ReportingController} {
		switch {
		case name == "kubelet":
			return "node agent"
		case name != "":
			return name
		}
	}
	return "somebody"
}

// latest is the newest event of one of the reasons.
func latest(events []corev1.Event, reasons ...string) *corev1.Event {
	var out *corev1.Event
	var at time.Time
	for k := range events {
		if _, last, _ := when(&events[k]); slices.Contains(reasons, events[k].Reason) && (out == nil || last.After(at)) {
			out, at = &events[k], last
		}
	}
	return out
}

func brief(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= 160 {
		return s
	}
	return strings.ToValidUTF8(s[:157], "") + "..."
}

// times counts in words.
func times(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// age writes a duration as people say it.
func age(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return strings.TrimSuffix(fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second), "0s")
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
