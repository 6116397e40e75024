package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/yare-project/yare/kind"
)

// eventRateLimit refuses events that come too fast: from all, into one namespace, by one user, or from one source about one object. Of both groups in
// which events are served: they are the same objects.
type eventRateLimit struct {
	limits []*eventLimit
}

// eventLimitFile is the plugin's configuration (eventratelimit.admission.k8s.io/v1alpha1 Configuration).
type eventLimitFile struct {
	metav1.TypeMeta `json:",inline"`
	Limits          []eventLimitRule `json:"limits"`
}

type eventLimitRule struct {
	Type      string `json:"type"`
	QPS       int32  `json:"qps"`
	Burst     int32  `json:"burst"`
	CacheSize int32  `json:"cacheSize,omitempty"`
}

// eventKeys say what the limits of a type count together.
var eventKeys = map[string]func(r *kind.AdmissionRequest, e *corev1.Event) string{
	"Server":    func(*kind.AdmissionRequest, *corev1.Event) string { return "" },
	"Namespace": func(r *kind.AdmissionRequest, _ *corev1.Event) string { return r.Ref.Namespace },
	"User":      func(r *kind.AdmissionRequest, _ *corev1.Event) string { return r.User.GetName() },
	"SourceAndObject": func(_ *kind.AdmissionRequest, e *corev1.Event) string {
		o := &e.InvolvedObject
		return strings.Join([]string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}, "")
	},
}

// eventCache is how many counters a limit keeps unless it says otherwise, as Kubernetes.
const eventCache = 4096

func (f eventLimitFile) check() error {
	if len(f.Limits) == 0 {
		return errors.New("limits: must not be empty")
	}
	for i, l := range f.Limits {
		switch at := fmt.Sprintf("limits[%d]", i); {
		case eventKeys[l.Type] == nil:
			return fmt.Errorf("%s.type: %q is not known: use Server, Namespace, User or SourceAndObject", at, l.Type)
		case l.Burst <= 0:
			return fmt.Errorf("%s.burst: %d must be positive", at, l.Burst)
		case l.QPS <= 0:
			return fmt.Errorf("%s.qps: %d must be positive", at, l.QPS)
		case l.CacheSize < 0:
			return fmt.Errorf("%s.cacheSize: %d must not be negative", at, l.CacheSize)
		}
	}
	return nil
}

func newEventRateLimit(f eventLimitFile, c clock.Clock) eventRateLimit {
	out := eventRateLimit{}
	for _, rule := range f.Limits {
		size := int(rule.CacheSize)
		if size == 0 {
			size = eventCache
		}
		out.limits = append(out.limits, &eventLimit{rule: rule, clock: c, counters: lru.New(size)})
	}
	return out
}

// eventLimit is one limit with its counters, of which the least used are forgotten.
type eventLimit struct {
	rule  eventLimitRule
	clock clock.Clock

	mu       sync.Mutex
	counters *lru.Cache
}

func (l *eventLimit) accepts(key string) bool {
	l.mu.Lock()
	counter, known := l.counters.Get(key)
	if !known {
		counter = flowcontrol.NewTokenBucketRateLimiterWithClock(float32(l.rule.QPS), int(l.rule.Burst), l.clock)
		l.counters.Add(key, counter)
	}
	l.mu.Unlock()
	return counter.(flowcontrol.RateLimiter).TryAccept()
}

func (eventRateLimit) Name() string { return "EventRateLimit" }

func (p eventRateLimit) Validate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	event, ok := r.Object.(*corev1.Event)
	if !ok || r.DryRun || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return nil
	}
	var over []string
	for _, l := range p.limits { // each counts the event, whatever the others say
		if key := eventKeys[l.rule.Type](r, event); !l.accepts(key) {
			over = append(over, fmt.Sprintf("limit reached on type %v for key %v", l.rule.Type, key))
		}
	}
	if len(over) > 0 {
		return apierrors.NewTooManyRequestsError(strings.Join(over, "; "))
	}
	return nil
}
