package audit

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/clock"
)

// Options are what kube-apiserver's flags --audit-* say; the zero value records nothing. DefaultOptions has the flags' defaults.
type Options struct {
	PolicyFile string
	Log        LogOptions
	Webhook    WebhookOptions
}

// OutputOptions are what both outputs have.
type OutputOptions struct {
	Mode            string
	Batch           BatchConfig
	TruncateEnabled bool
	Truncate        Truncate
	// Version is the API version of the events: audit.k8s.io/v1 is the only one.
	Version string
}

// LogOptions are those of --audit-log-*. MaxAge is in days, MaxSize in megabytes of 2^20 bytes.
type LogOptions struct {
	OutputOptions
	Path                        string
	Format                      string
	MaxAge, MaxBackups, MaxSize int
	Compress                    bool
}

// WebhookOptions are those of --audit-webhook-*.
type WebhookOptions struct {
	OutputOptions
	ConfigFile string
	Backoff    time.Duration
}

// DefaultOptions are kube-apiserver's defaults.
func DefaultOptions() Options {
	truncate := Truncate{Event: 100 << 10, Batch: 10 << 20}
	version := auditv1.SchemeGroupVersion.String()
	return Options{
		Log: LogOptions{Format: string(JSON), MaxAge: 366, MaxBackups: 100, MaxSize: 100, OutputOptions: OutputOptions{
			Mode: string(Blocking), Truncate: truncate, Version: version, Batch: BatchConfig{Buffer: 10000, Size: 1}}},
		Webhook: WebhookOptions{Backoff: 10 * time.Second, OutputOptions: OutputOptions{Mode: string(Batch), Truncate: truncate, Version: version,
			Batch: BatchConfig{Buffer: 10000, Size: 400, Wait: 30 * time.Second, Throttle: true, QPS: 10, Burst: 15, Async: true}}},
	}
}

// Validate refuses what cannot work, naming the flag.
func (o *Options) Validate() error {
	if o.Log.Path != "" {
		if err := o.Log.check("log"); err != nil {
			return err
		}
		if f := Format(o.Log.Format); f != JSON && f != Legacy {
			return fmt.Errorf("--audit-log-format %q is not known: use json or legacy", o.Log.Format)
		}
		for _, n := range []struct {
			flag  string
			value int
		}{{"maxage", o.Log.MaxAge}, {"maxbackup", o.Log.MaxBackups}, {"maxsize", o.Log.MaxSize}} {
			if n.value < 0 {
				return fmt.Errorf("--audit-log-%s %d can't be a negative number", n.flag, n.value)
			}
		}
	}
	if o.Webhook.ConfigFile != "" {
		if err := o.Webhook.check("webhook"); err != nil {
			return err
		}
		if o.Webhook.Backoff < 0 {
			return fmt.Errorf("--audit-webhook-initial-backoff %s can't be negative", o.Webhook.Backoff)
		}
	}
	return nil
}

func (o *OutputOptions) check(name string) error {
	modes := []string{string(Batch), string(Blocking), string(BlockingStrict)}
	b, t := &o.Batch, &o.Truncate
	flag := func(f string, args ...any) error { return fmt.Errorf("--audit-"+name+"-"+f, args...) }
	switch {
	case !slices.Contains(modes, o.Mode):
		return flag("mode %q is not known: use one of %s", o.Mode, strings.Join(modes, ", "))
	case o.Version != auditv1.SchemeGroupVersion.String():
		return flag("version %q is not known: use %s", o.Version, auditv1.SchemeGroupVersion)
	case t.Event <= 0:
		return flag("truncate-max-event-size %d must be a positive number", t.Event)
	case t.Batch < t.Event:
		return flag("truncate-max-batch-size %d must be no less than the size of an event (%d)", t.Batch, t.Event)
	case o.Mode != string(Batch):
		return nil
	case b.Buffer <= 0:
		return flag("batch-buffer-size %d must be a positive number", b.Buffer)
	case b.Size <= 0:
		return flag("batch-max-size %d must be a positive number", b.Size)
	case b.Throttle && b.QPS <= 0:
		return flag("batch-throttle-qps %v must be a positive number", b.QPS)
	case b.Throttle && b.Burst <= 0:
		return flag("batch-throttle-burst %d must be a positive number", b.Burst)
	}
	return nil
}

func (o *OutputOptions) truncate() Truncate {
	if !o.TruncateEnabled {
		return Truncate{}
	}
	return o.Truncate
}

// Start builds the Auditor that the options ask for; nil if they ask for none, which takes a policy and an output.
func (o *Options) Start(c clock.Clock, log *slog.Logger, metrics prometheus.Registerer) (*Auditor, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.PolicyFile == "" {
		if o.Log.Path != "" || o.Webhook.ConfigFile != "" {
			log.Warn("nothing is audited: give the policy with --audit-policy-file")
		}
		return nil, nil
	}
	evaluator, warnings, err := LoadPolicy(o.PolicyFile)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		log.Warn("the audit policy has a fault that is passed over", "file", o.PolicyFile, "fault", w)
	}
	outputs, err := o.outputs(c)
	if err != nil || len(outputs) == 0 {
		return nil, err
	}
	return New(Config{Policy: evaluator, Outputs: outputs, Clock: c, Log: log, Metrics: metrics}), nil
}

func (o *Options) outputs(c clock.Clock) ([]Output, error) {
	var out []Output
	if o.Log.Path != "" {
		sink, err := o.Log.open(c)
		if err != nil {
			return nil, err
		}
		out = append(out, Output{Sink: sink, Mode: Mode(o.Log.Mode), Batch: o.Log.Batch})
	}
	if o.Webhook.ConfigFile != "" {
		sink, err := NewWebhook(WebhookConfig{Kubeconfig: o.Webhook.ConfigFile, Backoff: o.Webhook.Backoff, Truncate: o.Webhook.truncate(), Clock: c})
		if err != nil {
			return nil, err
		}
		out = append(out, Output{Sink: sink, Mode: Mode(o.Webhook.Mode), Batch: o.Webhook.Batch})
	}
	return out, nil
}

func (o *LogOptions) open(c clock.Clock) (*Log, error) {
	if o.Path == "-" {
		return NewLog(stdout{os.Stdout}, Format(o.Format), o.truncate()), nil
	}
	file, err := OpenFile(FileConfig{Path: o.Path, MaxSize: int64(o.MaxSize) << 20, MaxAge: time.Duration(o.MaxAge) * 24 * time.Hour, MaxBackups: o.MaxBackups,
		Compress: o.Compress, Clock: c})
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	return NewLog(file, Format(o.Format), o.truncate()), nil
}

// stdout is not the sink's to close.
type stdout struct{ *os.File }

func (stdout) Close() error { return nil }
