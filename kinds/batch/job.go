package batch

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/core"
)

var _ = kind.Add(&Group, kind.Def[batchv1.Job]{
	Names:           kind.Names{Plural: "jobs", Categories: []string{"all"}},
	Default:         defaultJob,
	Prepare:         prepareJob,
	Validate:        validateJob,
	ValidateStatus:  validateJobStatus,
	Warn:            warnJob,
	OrphanByDefault: true, // batch/v1 keeps a Job's pods unless the delete says otherwise
	OrphanWarning: "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them " +
		"or set propagationPolicy=Orphan to suppress this warning",
	Columns: []kind.Column[batchv1.Job]{
		{Name: "Status", Description: "Whether the job runs, waits, or how it ended.",
			Value: func(j *batchv1.Job, _ time.Time) any { return jobState(j) }},
		{Name: "Completions", Description: batchv1.JobStatus{}.SwaggerDoc()["succeeded"],
			Value: func(j *batchv1.Job, _ time.Time) any { return jobCompletions(j) }},
		{Name: "Duration", Description: "The time from the job's start to its completion, or until now.",
			Value: func(j *batchv1.Job, now time.Time) any { return jobDuration(j, now) }},
		{Name: "Containers", Priority: 1, Description: "The names of the template's containers.",
			Value: func(j *batchv1.Job, _ time.Time) any { return cell.ContainerNames(j.Spec.Template.Spec.Containers) }},
		{Name: "Images", Priority: 1, Description: "The images of the template's containers.",
			Value: func(j *batchv1.Job, _ time.Time) any { return cell.ContainerImages(j.Spec.Template.Spec.Containers) }},
		{Name: "Selector", Priority: 1, Description: batchv1.JobSpec{}.SwaggerDoc()["selector"],
			Value: func(j *batchv1.Job, _ time.Time) any { return cell.Selector(j.Spec.Selector) }},
	},
	FieldRefusal: "field label %q not supported for Job",
	Fields: map[string]func(*batchv1.Job) string{
		"status.successful": func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) },
	},
})

func defaultJob(j *batchv1.Job) { defaultJobSpec(&j.Spec) }

func defaultJobSpec(spec *batchv1.JobSpec) {
	if spec.Completions == nil && spec.Parallelism == nil {
		spec.Completions = ptr.To[int32](1)
	}
	if spec.Parallelism == nil {
		spec.Parallelism = ptr.To[int32](1)
	}
	if spec.BackoffLimit == nil {
		spec.BackoffLimit = ptr.To[int32](6)
		if spec.BackoffLimitPerIndex != nil {
			spec.BackoffLimit = ptr.To[int32](math.MaxInt32)
		}
	}
	if spec.CompletionMode == nil {
		spec.CompletionMode = ptr.To(batchv1.NonIndexedCompletion)
	}
	if spec.Suspend == nil {
		spec.Suspend = ptr.To(false)
	}
	if spec.ManualSelector == nil {
		spec.ManualSelector = ptr.To(false)
	}
	if spec.PodReplacementPolicy == nil {
		spec.PodReplacementPolicy = ptr.To(batchv1.TerminatingOrFailed)
		if spec.PodFailurePolicy != nil {
			spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
		}
	}
	defaultJobTemplate(spec)
}

// defaultJobTemplate fills what a CronJob's template gets too: the pod template and the failure policy's conditions.
func defaultJobTemplate(spec *batchv1.JobSpec) {
	if spec.PodFailurePolicy != nil {
		for i := range spec.PodFailurePolicy.Rules {
			conditions := spec.PodFailurePolicy.Rules[i].OnPodConditions
			for j := range conditions {
				if conditions[j].Status == "" {
					conditions[j].Status = corev1.ConditionTrue
				}
			}
		}
	}
	defaultTemplate(&spec.Template)
}

// The labels by which a job finds its pods. The ones without prefix came first and are kept beside the others.
const (
	legacyControllerUID = "controller-uid"
	legacyJobName       = "job-name"
)

// prepareJob selects the job's pods by its uid, unless the user chose the selector, and gives a job without labels its template's.
func prepareJob(j, old *batchv1.Job) {
	if old == nil {
		core.DropDisabled(&j.Spec.Template, nil)
	} else {
		core.DropDisabled(&j.Spec.Template, &old.Spec.Template)
	}
	if old == nil && !ptr.Deref(j.Spec.ManualSelector, false) {
		generateSelector(j)
	}
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(j.Spec.Template.Labels)
	}
}

func generateSelector(j *batchv1.Job) {
	if j.Spec.Template.Labels == nil {
		j.Spec.Template.Labels = map[string]string{}
	}
	// A label that the user set to something else is left alone here and refused by validation.
	for key, value := range jobLabels(j) {
		if _, set := j.Spec.Template.Labels[key]; !set {
			j.Spec.Template.Labels[key] = value
		}
	}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, set := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !set {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
}

func jobLabels(j *batchv1.Job) map[string]string {
	return map[string]string{
		legacyControllerUID: string(j.UID), batchv1.ControllerUidLabel: string(j.UID),
		legacyJobName: j.Name, batchv1.JobNameLabel: j.Name,
	}
}

func warnJob(j, old *batchv1.Job) []string {
	var warnings []string
	if old == nil {
		warnings = warnPodName(j.Name)
	}
	return append(warnings, warnJobSpec(&j.Spec, field.NewPath("spec"))...)
}

func warnPodName(name string) []string {
	if messages := validation.IsDNS1123Label(name); len(messages) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", messages)}
	}
	return nil
}

func warnJobSpec(spec *batchv1.JobSpec, path *field.Path) []string {
	out := core.WarnPodTemplate(&spec.Template, path.Child("template"))
	if ptr.Deref(spec.CompletionMode, "") == batchv1.IndexedCompletion &&
		ptr.Deref(spec.Completions, 0) > completionsSoftLimit && ptr.Deref(spec.Parallelism, 0) > parallelismLimitForHighCompletions {
		out = append(out, path.String()+": with more than 10^5 completions and a parallelism above 10^4, completedIndexes may not be tracked when many indexes fail")
	}
	return out
}

// jobState is the word of the STATUS column.
func jobState(j *batchv1.Job) string {
	switch {
	case isTrue(j, batchv1.JobComplete):
		return "Complete"
	case isTrue(j, batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case isTrue(j, batchv1.JobSuspended):
		return "Suspended"
	case isTrue(j, batchv1.JobFailureTarget):
		return "FailureTarget"
	case isTrue(j, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func isTrue(j *batchv1.Job, condition batchv1.JobConditionType) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == condition {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func jobCompletions(j *batchv1.Job) string {
	parallelism := ptr.Deref(j.Spec.Parallelism, 0)
	switch {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, parallelism)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func jobDuration(j *batchv1.Job, now time.Time) string {
	switch {
	case j.Status.StartTime == nil:
		return ""
	case j.Status.CompletionTime == nil:
		return duration.HumanDuration(now.Sub(j.Status.StartTime.Time))
	}
	return duration.HumanDuration(j.Status.CompletionTime.Sub(j.Status.StartTime.Time))
}
