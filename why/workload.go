package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// counts are what all sorts of workloads have.
type counts struct {
	kind, loop         string
	want, exist, ready int32
	observed           int64
	ordered            bool // one pod after the other
}

// workload explains what keeps pods.
func workload(f Facts, c counts) Report {
	r := Report{Object: c.kind + "/" + f.Object.GetName(), Steps: append([]Step{created(f.Object)}, eventSteps(f.Events)...)}
	r.State = fmt.Sprintf("%d of %d pods ready", c.ready, c.want)
	switch {
	case f.Object.GetDeletionTimestamp() != nil:
		deleted(&r, f.Object, f.Now)
	case c.observed < f.Object.GetGeneration():
		r.Waits = []Wait{{Loop: c.loop, For: fmt.Sprintf("its turn: it has seen generation %d of %d", c.observed, f.Object.GetGeneration())}}
	case c.exist < c.want:
		r.Waits = append(missingPods(f, c), podGroups(f)...)
	case c.exist > c.want:
		r.Waits = []Wait{{Loop: c.loop, For: fmt.Sprintf("%d pods too many to end", c.exist-c.want)}}
	case c.ready < c.want:
		r.Waits = podGroups(f)
	}
	return r
}

// missingPods says why there are fewer pods than wanted.
func missingPods(f Facts, c counts) []Wait {
	if e := latest(f.Events, "FailedCreate"); e != nil {
		return []Wait{refusedPods(e, c.loop)}
	}
	if e := latest(f.Parts, "FailedCreate"); e != nil {
		return []Wait{refusedPods(e, "replicaset controller")}
	}
	if c.ordered && len(f.Pods) > 0 {
		return []Wait{{Loop: c.loop, For: fmt.Sprintf("the pod before to be ready: %d of %d exist, one after the other", c.exist, c.want)}}
	}
	return []Wait{{Loop: c.loop, For: fmt.Sprintf("its turn: %d of %d pods exist", c.exist, c.want)}}
}

// refusedPods says who refuses the pods that a controller would make.
func refusedPods(e *corev1.Event, loop string) Wait {
	first, last, count := when(e)
	w := Wait{Loop: loop, Since: &first, For: fmt.Sprintf("the API server to accept its pods; refused %s, last at %s: %s", times(int(count), "time"), last.UTC().Format("15:04:05 MST"), brief(e.Message))}
	switch m := e.Message; {
	case strings.Contains(m, "exceeded quota"):
		w.Changes = []string{"a larger ResourceQuota, or fewer pods under it"}
	case strings.Contains(m, "failed calling webhook"):
		w.Changes = []string{"the webhook to answer, or failurePolicy Ignore"}
	case strings.Contains(m, "admission webhook"), strings.Contains(m, "ValidatingAdmissionPolicy"):
		w.Changes = []string{"a pod template that the webhook or policy accepts"}
	case strings.Contains(m, "PodSecurity"):
		w.Changes = []string{"a pod template within the namespace's pod security level, or a wider level"}
	case strings.Contains(m, "serviceaccount"):
		w.Changes = []string{"the service account that the template names"}
	}
	return w
}

// podGroups sums up what the pods wait for: the same reason once, with one pod to ask about.
func podGroups(f Facts) []Wait {
	type group struct {
		wait  Wait
		first string
		count int
	}
	var groups []*group
	pods := slices.Clone(f.Pods)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range pods {
		if isReady(p) || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		one := pod(Facts{Now: f.Now, Object: p, Events: about(f.Parts, p)}, p)
		w := Wait{Loop: "pod/" + p.Name, For: one.State}
		if len(one.Waits) > 0 {
			w = one.Waits[0]
		}
		w.For = strings.ReplaceAll(w.For, p.Name, "POD")
		same := slices.IndexFunc(groups, func(g *group) bool { return g.wait.Loop == w.Loop && g.wait.For == w.For })
		if same < 0 {
			groups = append(groups, &group{wait: w, first: p.Name})
			same = len(groups) - 1
		}
		groups[same].count++
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(b.count, a.count) })
	var out []Wait
	for k, g := range groups {
		if k == 5 {
			out = append(out, Wait{Loop: "others", For: fmt.Sprintf("%d more reasons", len(groups)-k)})
			break
		}
		g.wait.For = times(g.count, "pod") + ": " + g.wait.For
		g.wait.Next = "ask: yare why pod/" + g.first
		out = append(out, g.wait)
	}
	return out
}

// about are the events about one object.
func about(events []corev1.Event, p *corev1.Pod) []corev1.Event {
	var out []corev1.Event
	for _, e := range events {
		if e.InvolvedObject.UID == p.UID {
			out = append(out, e)
		}
	}
	return out
}

// deployment explains a Deployment by its newest ReplicaSet.
func deployment(f Facts, d *appsv1.Deployment) Report {
	r := workload(f, counts{kind: "deployment", loop: "deployment controller", want: replicas(d.Spec.Replicas), ready: d.Status.ReadyReplicas, exist: d.Status.Replicas, observed: d.Status.ObservedGeneration})
	if d.Status.UpdatedReplicas < replicas(d.Spec.Replicas) {
		r.State += fmt.Sprintf(", %d of the newest template", d.Status.UpdatedReplicas)
	}
	if d.DeletionTimestamp != nil || d.Status.ObservedGeneration < d.Generation {
		return r
	}
	if d.Spec.Paused {
		r.Waits = append([]Wait{{Loop: "whoever unpauses the deployment", For: "nothing: it is paused, a new template is not rolled out"}}, r.Waits...)
	}
	for _, c := range d.Status.Conditions {
		at := c.LastTransitionTime.Time
		switch {
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			w := refusedPods(&corev1.Event{Message: c.Message, FirstTimestamp: c.LastTransitionTime, LastTimestamp: c.LastUpdateTime, Count: 1}, "replicaset controller")
			r.Waits = append([]Wait{w}, podGroups(f)...)
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse:
			r.Steps = append(r.Steps, Step{At: at, By: "deployment controller", What: c.Reason + ": " + brief(c.Message)})
		}
	}
	if len(r.Waits) == 0 && d.Status.AvailableReplicas < replicas(d.Spec.Replicas) && d.Status.ReadyReplicas == replicas(d.Spec.Replicas) {
		r.Waits = []Wait{{Loop: "deployment controller", For: fmt.Sprintf("pods to stay ready for minReadySeconds (%d)", d.Spec.MinReadySeconds)}}
	}
	return r
}

// job explains a Job.
func job(f Facts, j *batchv1.Job) Report {
	r := Report{Object: "job/" + j.Name, Steps: append([]Step{created(j)}, eventSteps(f.Events)...)}
	r.State = fmt.Sprintf("%d active, %d succeeded, %d failed", j.Status.Active, j.Status.Succeeded, j.Status.Failed)
	if j.Spec.Completions != nil {
		r.State = fmt.Sprintf("%d active, %d of %d succeeded, %d failed", j.Status.Active, j.Status.Succeeded, *j.Spec.Completions, j.Status.Failed)
	}
	if j.DeletionTimestamp != nil {
		deleted(&r, j, f.Now)
		return r
	}
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			r.State = fmt.Sprintf("ended: %s: %s", c.Type, brief(strings.TrimSpace(c.Reason+" "+c.Message)))
			return r
		}
	}
	switch e := latest(f.Events, "FailedCreate"); {
	case j.Spec.Suspend != nil && *j.Spec.Suspend:
		r.Waits = []Wait{{Loop: "whoever resumes the job", For: "spec.suspend to be false"}}
	case j.Status.Active == 0 && e != nil:
		r.Waits = []Wait{refusedPods(e, "job controller")}
	case j.Status.Active > 0:
		r.Waits = podGroups(f)
		if len(r.Waits) == 0 {
			r.Waits = []Wait{{Loop: "the job's pods", For: "their own work: " + fmt.Sprint(j.Status.Active) + " run", Since: startOf(j)}}
		}
	case j.Status.Failed > 0:
		r.Waits = []Wait{{Loop: "job controller", For: fmt.Sprintf("its back-off after %d failed pods (spec.backoffLimit %d)", j.Status.Failed, replicas(j.Spec.BackoffLimit))}}
	default:
		r.Waits = []Wait{{Loop: "job controller", For: "its turn: no pod exists"}}
	}
	return r
}

func startOf(j *batchv1.Job) *time.Time {
	if j.Status.StartTime == nil {
		return nil
	}
	return &j.Status.StartTime.Time
}
