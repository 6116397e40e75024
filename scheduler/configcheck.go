package scheduler

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/extender"
)

// What follows checks a KubeSchedulerConfiguration by the rules, and with the texts, of Kubernetes 1.36. Arguments of plugins are checked by the plugins.

func (f *file) check(profiles []ProfileConfig) (errs field.ErrorList) {
	if p := f.Parallelism; p != nil && *p <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("parallelism"), *p, "should be an integer value greater than zero"))
	}
	errs = append(errs, checkPercentage(f.PercentageOfNodesToScore, field.NewPath("percentageOfNodesToScore"))...)
	initial, longest := ptr.Deref(f.PodInitialBackoffSeconds, 1), ptr.Deref(f.PodMaxBackoffSeconds, 10)
	if initial <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("podInitialBackoffSeconds"), initial, "must be greater than 0"))
	}
	if longest < initial {
		errs = append(errs, field.Invalid(field.NewPath("podMaxBackoffSeconds"), longest, "must be greater than or equal to PodInitialBackoffSeconds"))
	}
	errs = append(errs, checkProfiles(profiles, field.NewPath("profiles"))...)
	errs = append(errs, extender.Check(f.Extenders, field.NewPath("extenders"))...)
	errs = append(errs, checkElection(f.LeaderElection, field.NewPath("leaderElection"))...)
	errs = append(errs, checkConnection(f.ClientConnection, field.NewPath("clientConnection"))...)
	for _, r := range []struct {
		set        bool
		field, why string
	}{
		{f.EnableProfiling != nil, "enableProfiling", "profiles are the whole process's, which serves them or not; leave it out"},
		{f.EnableContentionProfiling != nil, "enableContentionProfiling", "profiles are the whole process's, which serves them or not; leave it out"},
		{f.DelayCacheUntilActive != nil, "delayCacheUntilActive", "who leads decides when caches are filled; leave it out"},
	} {
		if r.set {
			errs = append(errs, field.Forbidden(field.NewPath(r.field), r.why))
		}
	}
	return errs
}

func checkPercentage(v *int32, path *field.Path) field.ErrorList {
	if v != nil && (*v < 0 || *v > 100) {
		return field.ErrorList{field.Invalid(path, *v, "not in valid range [0-100]")}
	}
	return nil
}

func checkProfiles(list []ProfileConfig, path *field.Path) (errs field.ErrorList) {
	first := map[string]int{}
	for k := range list {
		p, at := &list[k], path.Index(k)
		if p.SchedulerName == "" {
			errs = append(errs, field.Required(at.Child("schedulerName"), ""))
		} else if before, taken := first[p.SchedulerName]; taken {
			errs = append(errs, field.Duplicate(at.Child("schedulerName"), path.Index(before).Child("schedulerName").String()))
		} else {
			first[p.SchedulerName] = k
		}
		errs = append(errs, checkPercentage(p.PercentageOfNodesToScore, at.Child("percentageOfNodesToScore"))...)
		errs = append(errs, p.Plugins.check(at.Child("plugins"))...)
		seen := map[string]bool{}
		for j, c := range p.PluginConfig {
			if seen[c.Name] {
				errs = append(errs, field.Duplicate(at.Child("pluginConfig").Index(j), c.Name))
			}
			seen[c.Name] = true
			errs = append(errs, checkRemoved(c.Name, at.Child("pluginConfig").Index(j))...)
		}
	}
	return errs
}

// removed lists plugins that Kubernetes had once.
var removed = []string{"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"}

func checkRemoved(name string, path *field.Path) field.ErrorList {
	if slices.Contains(removed, name) {
		return field.ErrorList{field.Invalid(path, name, fmt.Sprintf("was invalid in version %q (KubeSchedulerConfiguration is version %q)", "v1", configVersion))}
	}
	return nil
}

func (s *PluginSets) check(path *field.Path) (errs field.ErrorList) {
	if s == nil {
		return nil
	}
	if n := len(s.QueueSort.Enabled); n > 1 {
		errs = append(errs, field.Invalid(path.Child("queueSort", "Enabled"), n, "only one queue sort plugin can be enabled"))
	}
	for _, one := range s.points() {
		for k, r := range one.set.Enabled {
			at := path.Child(one.name, "enabled").Index(k)
			errs = append(errs, checkRemoved(r.Name, at)...)
			if r.Weight < 0 {
				errs = append(errs, field.Invalid(at.Child("weight"), r.Weight, "must not be negative; a plugin that is not to score is disabled at score"))
			}
		}
	}
	return errs
}

type pointSet struct {
	name string
	set  PluginSet
}

// points lists the sets by the names of their fields.
func (s *PluginSets) points() []pointSet {
	return []pointSet{{"multiPoint", s.MultiPoint}, {"preEnqueue", s.PreEnqueue}, {"queueSort", s.QueueSort}, {"preFilter", s.PreFilter}, {"filter", s.Filter},
		{"postFilter", s.PostFilter}, {"preScore", s.PreScore}, {"score", s.Score}, {"reserve", s.Reserve}, {"permit", s.Permit}, {"preBind", s.PreBind}, {"bind", s.Bind},
		{"postBind", s.PostBind}}
}

func checkElection(e *LeaderElection, path *field.Path) (errs field.ErrorList) {
	if e == nil || !ptr.Deref(e.LeaderElect, true) {
		return nil
	}
	if e.ResourceLock != "" && e.ResourceLock != "leases" {
		errs = append(errs, field.Invalid(path.Child("resourceLock"), e.ResourceLock, `resourceLock value must be "leases"`))
	}
	or := func(d metav1.Duration, def time.Duration) time.Duration {
		if d.Duration == 0 {
			return def
		}
		return d.Duration
	}
	lease, renew, retry := or(e.LeaseDuration, 15*time.Second), or(e.RenewDeadline, 10*time.Second), or(e.RetryPeriod, 2*time.Second)
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"leaseDuration", lease}, {"renewDeadline", renew}, {"retryPeriod", retry}} {
		if d.value <= 0 {
			errs = append(errs, field.Invalid(path.Child(d.name), d.value.String(), "must be greater than zero"))
		}
	}
	if lease <= renew {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), renew.String(), "must be greater than `RenewDeadline`"))
	}
	return errs
}

func checkConnection(c *ClientConnection, path *field.Path) (errs field.ErrorList) {
	if c == nil {
		return nil
	}
	if c.Burst < 0 {
		errs = append(errs, field.Invalid(path.Child("burst"), c.Burst, "must be non-negative"))
	}
	for _, t := range []struct{ name, value string }{{"contentType", c.ContentType}, {"acceptContentTypes", c.AcceptContentTypes}} {
		if t.value != "" && t.value != runtime.ContentTypeProtobuf {
			errs = append(errs, field.NotSupported(path.Child(t.name), t.value, []string{runtime.ContentTypeProtobuf}))
		}
	}
	return errs
}
