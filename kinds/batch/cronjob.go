package batch

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // a machine without zone data must still know every zone

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/internal/cron"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[batchv1.CronJob]{
	Names:           kind.Names{Plural: "cronjobs", Short: []string{"cj"}, Categories: []string{"all"}},
	AnyGenerateName: true,
	Default:         defaultCronJob,
	Prepare: func(c, old *batchv1.CronJob) {
		if old == nil {
			old = &batchv1.CronJob{}
		}
		core.DropDisabled(&c.Spec.JobTemplate.Spec.Template, &old.Spec.JobTemplate.Spec.Template)
	},
	Validate: validateCronJob,
	Warn:     warnCronJob,
	Columns: []kind.Column[batchv1.CronJob]{
		{Name: "Schedule", Description: batchv1.CronJobSpec{}.SwaggerDoc()["schedule"],
			Value: func(c *batchv1.CronJob, _ time.Time) any { return c.Spec.Schedule }},
		{Name: "Timezone", Description: batchv1.CronJobSpec{}.SwaggerDoc()["timeZone"],
			Value: func(c *batchv1.CronJob, _ time.Time) any { return ptr.Deref(c.Spec.TimeZone, cell.None) }},
		{Name: "Suspend", Type: "boolean", Description: batchv1.CronJobSpec{}.SwaggerDoc()["suspend"],
			Value: func(c *batchv1.CronJob, _ time.Time) any { return cell.Bool(c.Spec.Suspend) }},
		{Name: "Active", Type: "integer", Description: batchv1.CronJobStatus{}.SwaggerDoc()["active"],
			Value: func(c *batchv1.CronJob, _ time.Time) any { return int64(len(c.Status.Active)) }},
		{Name: "Last Schedule", Description: batchv1.CronJobStatus{}.SwaggerDoc()["lastScheduleTime"], Value: lastSchedule},
		{Name: "Containers", Priority: 1, Description: "The names of the template's containers.",
			Value: func(c *batchv1.CronJob, _ time.Time) any {
				return cell.ContainerNames(c.Spec.JobTemplate.Spec.Template.Spec.Containers)
			}},
		{Name: "Images", Priority: 1, Description: "The images of the template's containers.",
			Value: func(c *batchv1.CronJob, _ time.Time) any {
				return cell.ContainerImages(c.Spec.JobTemplate.Spec.Template.Spec.Containers)
			}},
		{Name: "Selector", Priority: 1, Description: batchv1.JobSpec{}.SwaggerDoc()["selector"],
			Value: func(c *batchv1.CronJob, _ time.Time) any { return cell.Selector(c.Spec.JobTemplate.Spec.Selector) }},
	},
})

func lastSchedule(c *batchv1.CronJob, now time.Time) any {
	if c.Status.LastScheduleTime == nil {
		return cell.None
	}
	return cell.Age(*c.Status.LastScheduleTime, now)
}

func defaultCronJob(c *batchv1.CronJob) {
	if c.Spec.ConcurrencyPolicy == "" {
		c.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	if c.Spec.Suspend == nil {
		c.Spec.Suspend = ptr.To(false)
	}
	if c.Spec.SuccessfulJobsHistoryLimit == nil {
		c.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](3)
	}
	if c.Spec.FailedJobsHistoryLimit == nil {
		c.Spec.FailedJobsHistoryLimit = ptr.To[int32](1)
	}
	// The rest of the job's defaults is filled in when the job is made.
	defaultJobTemplate(&c.Spec.JobTemplate.Spec)
}

// maxCronJobName leaves room for the 11 characters that are appended to make a job's name.
const maxCronJobName = 52

func validateCronJob(c, old *batchv1.CronJob) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if old == nil && len(c.Name) > maxCronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, fmt.Sprintf("must be no more than %d characters", maxCronJobName)))
	}
	zoneInSchedule := old != nil && strings.Contains(old.Spec.Schedule, "TZ")
	errs = append(errs, validateSchedule(c.Spec.Schedule, c.Spec.TimeZone, zoneInSchedule, spec.Child("schedule"))...)
	if old == nil || !ptr.Equal(old.Spec.TimeZone, c.Spec.TimeZone) {
		errs = append(errs, validateTimeZone(c.Spec.TimeZone, spec.Child("timeZone"))...)
	}
	errs = append(errs, rule.NonNegativePtr(c.Spec.StartingDeadlineSeconds, spec.Child("startingDeadlineSeconds"))...)
	errs = append(errs, rule.RequiredOneOf(c.Spec.ConcurrencyPolicy, spec.Child("concurrencyPolicy"), "",
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	errs = append(errs, rule.NonNegativePtr(c.Spec.SuccessfulJobsHistoryLimit, spec.Child("successfulJobsHistoryLimit"))...)
	errs = append(errs, rule.NonNegativePtr(c.Spec.FailedJobsHistoryLimit, spec.Child("failedJobsHistoryLimit"))...)
	return append(errs, validateJobTemplate(&c.Spec.JobTemplate.Spec, spec.Child("jobTemplate", "spec"))...)
}

func validateJobTemplate(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := validateJobSpec(spec, path)
	if spec.Selector != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), spec.Selector, "`selector` will be auto-generated"))
	}
	if ptr.Deref(spec.ManualSelector, false) {
		errs = append(errs, field.NotSupported(path.Child("manualSelector"), *spec.ManualSelector, []string{"nil", "false"}))
	}
	return errs
}

// validateSchedule allows a zone inside the schedule only to a CronJob that has had one since before timeZone existed.
func validateSchedule(schedule string, zone *string, zoneAllowed bool, path *field.Path) field.ErrorList {
	if schedule == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if _, err := cron.Parse(schedule); err != nil {
		errs = append(errs, field.Invalid(path, schedule, err.Error()))
	}
	switch has := strings.Contains(schedule, "TZ"); {
	case has && !zoneAllowed:
		errs = append(errs, field.Invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	case has && zone != nil:
		errs = append(errs, field.Invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
	}
	return errs
}

// zonePart is a component of a zone's name, by the naming rules of the time zone database plus the digits of its older names.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

func validateTimeZone(zone *string, path *field.Path) field.ErrorList {
	switch {
	case zone == nil:
		return nil
	case *zone == "":
		return field.ErrorList{field.Invalid(path, *zone, "timeZone must be nil or non-empty string")}
	case strings.EqualFold(*zone, "Local"):
		return field.ErrorList{field.Invalid(path, *zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")}
	}
	for part := range strings.SplitSeq(*zone, "/") {
		if part == "." || part == ".." || !zonePart.MatchString(part) {
			return field.ErrorList{field.Invalid(path, *zone, "unknown time zone "+*zone)}
		}
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		return field.ErrorList{field.Invalid(path, *zone, err.Error())}
	}
	return nil
}

func warnCronJob(c, old *batchv1.CronJob) []string {
	var warnings []string
	if old == nil {
		warnings = warnPodName(c.Name)
	} else if strings.Contains(c.Spec.Schedule, "TZ") {
		warnings = append(warnings, "spec.schedule: TZ and CRON_TZ in a schedule are not supported, use spec.timeZone instead")
	}
	return append(warnings, warnJobSpec(&c.Spec.JobTemplate.Spec, field.NewPath("spec", "jobTemplate", "spec"))...)
}
