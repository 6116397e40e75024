package main

import (
	"github.com/spf13/pflag"

	"github.com/yare-project/yare/apiserver/audit"
)

// addAudit adds kube-apiserver's flags of auditing, with its defaults.
func (f *flags) addAudit(set *pflag.FlagSet) {
	o := &f.config.Audit
	*o = audit.DefaultOptions()
	set.StringVar(&o.PolicyFile, "audit-policy-file", "", "an audit.k8s.io/v1 Policy; without one nothing is audited")
	l := &o.Log
	set.StringVar(&l.Path, "audit-log-path", "", "write audit events to this file; - is standard output")
	set.StringVar(&l.Format, "audit-log-format", l.Format, "json, or legacy for one line of text an event")
	set.IntVar(&l.MaxAge, "audit-log-maxage", l.MaxAge, "days that old audit logs are kept; 0: without bound")
	set.IntVar(&l.MaxBackups, "audit-log-maxbackup", l.MaxBackups, "how many old audit logs are kept; 0: without bound")
	set.IntVar(&l.MaxSize, "audit-log-maxsize", l.MaxSize, "megabytes from which a new audit log is begun; 0: never")
	set.BoolVar(&l.Compress, "audit-log-compress", false, "compress old audit logs")
	addAuditOutput(set, "log", &l.OutputOptions)
	w := &o.Webhook
	set.StringVar(&w.ConfigFile, "audit-webhook-config-file", "", "post audit events to the server that this kubeconfig names")
	set.DurationVar(&w.Backoff, "audit-webhook-initial-backoff", w.Backoff, "time before the first repetition of a failed call")
	set.DurationVar(&w.Backoff, "audit-webhook-batch-initial-backoff", w.Backoff, "")
	_ = set.MarkDeprecated("audit-webhook-batch-initial-backoff", "use --audit-webhook-initial-backoff instead")
	addAuditOutput(set, "webhook", &w.OutputOptions)
}

func addAuditOutput(set *pflag.FlagSet, name string, o *audit.OutputOptions) {
	flag := func(what string) string { return "audit-" + name + "-" + what }
	set.StringVar(&o.Mode, flag("mode"), o.Mode, "batch (in the background), blocking (requests wait), or blocking-strict (and are refused if they cannot be recorded)")
	set.StringVar(&o.Version, flag("version"), o.Version, "API version of the events")
	b, t := &o.Batch, &o.Truncate
	set.IntVar(&b.Buffer, flag("batch-buffer-size"), b.Buffer, "events that may wait; more are dropped")
	set.IntVar(&b.Size, flag("batch-max-size"), b.Size, "events of a batch")
	set.DurationVar(&b.Wait, flag("batch-max-wait"), b.Wait, "time that a batch waits for more events")
	set.BoolVar(&b.Throttle, flag("batch-throttle-enable"), b.Throttle, "bound the rate of batches")
	set.Float32Var(&b.QPS, flag("batch-throttle-qps"), b.QPS, "batches a second, on average")
	set.IntVar(&b.Burst, flag("batch-throttle-burst"), b.Burst, "batches at once after a pause")
	set.BoolVar(&o.TruncateEnabled, flag("truncate-enabled"), false, "take the bodies out of events that are too large, and split batches that are")
	set.Int64Var(&t.Event, flag("truncate-max-event-size"), t.Event, "bytes of an event")
	set.Int64Var(&t.Batch, flag("truncate-max-batch-size"), t.Batch, "bytes of a batch")
}
