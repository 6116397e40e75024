package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
)

// Limits of the recorder; client-go's recorder has the same, and users know what they see from it.
const (
	eventQueue       = 1000             // Events that may wait to be written
	eventMemory      = 4096             // Events whose repetition is recognised
	similarEvents    = 10               // messages that may differ before they are combined
	similarWithin    = 10 * time.Minute // the time in which they are counted
	objectEventBurst = 25               // Events at once about one object
	objectEventEvery = 5 * time.Minute  // and one more in each such time
	eventAttempts    = 4
	tellEvery        = 10 * time.Second // how often dropped Events are logged at most
)

// RecorderConfig is what a recorder needs.
type RecorderConfig struct {
	Transport client.Transport
	// Component is the Events' source and reporting controller; Instance, if set, the reporting instance.
	Component, Instance string
	Clock               clock.WithTicker // nil means the real one
	Log                 *slog.Logger     // nil means slog.Default()
}

// Recorder writes core/v1 Events in the background. A repeated Event raises the count of the first; many that differ only in their message are combined;
// one object gets 25 and then one in five minutes. What comes when 1,000 already wait is dropped.
type Recorder struct {
	config RecorderConfig
	todo   chan *occurrence

	dropped atomic.Int64 // since that was told last

	// What follows belongs to Run. What happened is known by its identity only: there are recorders by the dozen, and what they remember is large.
	told    time.Time // when dropped Events were logged last
	last    int64     // the newest name suffix
	seed    maphash.Seed
	written map[identity]writing
	similar map[identity]*similarity
	spam    map[identity]*rate.Limiter
}

// identity stands for an occurrence or a part of one; that two have the same is not to be expected, and would merge their Events.
type identity uint64

// writing is an Event that was written.
type writing struct {
	namespace, name string
	count           int32
}

// occurrence is what makes two Events the same.
type occurrence struct {
	about                 corev1.ObjectReference
	kind, reason, message string
}

type similarity struct {
	since    time.Time
	messages []identity
}

// NewRecorder makes a recorder; Run writes what it hears.
func NewRecorder(config RecorderConfig) *Recorder {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	return &Recorder{config: config, todo: make(chan *occurrence, eventQueue), seed: maphash.MakeSeed(), written: map[identity]writing{},
		similar: map[identity]*similarity{}, spam: map[identity]*rate.Limiter{}}
}

// Event records that something happened to about; kind is corev1.EventTypeNormal or EventTypeWarning. It never blocks.
func (r *Recorder) Event(about client.Object, kind, reason, message string) {
	gvk, ok := client.KindOf(about)
	if !ok {
		r.config.Log.Error("event about an object of unknown kind dropped", "type", fmt.Sprintf("%T", about), "reason", reason)
		return
	}
	version, k := gvk.ToAPIVersionAndKind()
	r.EventAbout(corev1.ObjectReference{APIVersion: version, Kind: k, Namespace: about.GetNamespace(), Name: about.GetName(),
		UID: about.GetUID(), ResourceVersion: about.GetResourceVersion()}, kind, reason, message)
}

// EventAbout is Event for a reference, which may name a part of the object by FieldPath.
func (r *Recorder) EventAbout(about corev1.ObjectReference, kind, reason, message string) {
	if len(message) > 1024 { // the API's limit
		message = message[:1021] + "..."
	}
	select {
	case r.todo <- &occurrence{about, kind, reason, message}:
	default:
		r.dropped.Add(1) // Run tells
	}
}

// Run writes Events until ctx ends, and then those that still wait, for up to a second.
func (r *Recorder) Run(ctx context.Context) {
	for {
		select {
		case o := <-r.todo:
			r.record(ctx, *o)
			r.tellDropped()
			continue
		case <-ctx.Done():
		}
		break
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for last.Err() == nil {
		select {
		case o := <-r.todo:
			r.record(last, *o)
		default:
			return
		}
	}
}

// tellDropped logs, from time to time, how many Events were dropped.
func (r *Recorder) tellDropped() {
	now := r.config.Clock.Now()
	if r.dropped.Load() == 0 || now.Sub(r.told) < tellEvery {
		return
	}
	r.told = now
	r.config.Log.Warn("events dropped: too many wait to be written", "component", r.config.Component, "count", r.dropped.Swap(0))
}

func (r *Recorder) record(ctx context.Context, o occurrence) {
	now := r.config.Clock.Now()
	key, message := r.combine(o, now)
	if r.spams(o.about, now) {
		return
	}
	delay := 100 * time.Millisecond
	for attempt := 1; ; attempt++ {
		err := r.write(ctx, key, o, message, now)
		if err == nil || ctx.Err() != nil {
			return
		}
		if answered(err) || attempt == eventAttempts {
			r.config.Log.Debug("event not written", "object", o.about.Name, "reason", o.reason, "error", err)
			return
		}
		timer := r.config.Clock.NewTimer(delay)
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
		delay *= 4
	}
}

// answered says that the server judged the request, so that repeating it is of no use.
func answered(err error) bool {
	return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) &&
		!apierrors.IsServiceUnavailable(err)
}

// combine gives the identity and the text under which an occurrence is written.
func (r *Recorder) combine(o occurrence, now time.Time) (identity, string) {
	o.about.ResourceVersion = "" // the same thing may happen to later states
	group := o
	group.message = ""
	all := identity(maphash.Comparable(r.seed, group))
	s := r.similar[all]
	if s == nil || now.Sub(s.since) > similarWithin {
		prune(r.similar)
		s = &similarity{since: now}
		r.similar[all] = s
	}
	this := identity(maphash.Comparable(r.seed, o))
	if len(s.messages) <= similarEvents && !slices.Contains(s.messages, this) {
		s.messages = append(s.messages, this)
	}
	if len(s.messages) > similarEvents {
		return all, "(combined from similar events): " + o.message
	}
	return this, o.message
}

func (r *Recorder) spams(about corev1.ObjectReference, now time.Time) bool {
	about.ResourceVersion, about.FieldPath = "", ""
	key := identity(maphash.Comparable(r.seed, about))
	l := r.spam[key]
	if l == nil {
		prune(r.spam)
		l = rate.NewLimiter(rate.Every(objectEventEvery), objectEventBurst)
		r.spam[key] = l
	}
	return !l.AllowN(now, 1)
}

// prune keeps a memory bounded: forgetting costs a repeated Event at worst.
func prune[K comparable, V any](m map[K]V) {
	for k := range m {
		if len(m) < eventMemory {
			return
		}
		delete(m, k)
	}
}

func (r *Recorder) write(ctx context.Context, key identity, o occurrence, message string, now time.Time) error {
	api := client.Of[*corev1.Event](r.config.Transport)
	if old, ok := r.written[key]; ok {
		body, err := json.Marshal(map[string]any{"count": old.count + 1, "lastTimestamp": metav1.NewTime(now), "message": message})
		if err != nil {
			return err
		}
		e, err := api.Patch(ctx, old.namespace, old.name, types.StrategicMergePatchType, body, "")
		if err == nil {
			r.written[key] = written(e)
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		delete(r.written, key) // it expired
	}
	for {
		e, err := api.Create(ctx, r.event(o, message, now))
		if apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
			continue // the name's suffix grows each time
		}
		if err == nil {
			prune(r.written)
			r.written[key] = written(e)
		}
		return err
	}
}

func written(e *corev1.Event) writing { return writing{e.Namespace, e.Name, e.Count} }

func (r *Recorder) event(o occurrence, message string, now time.Time) *corev1.Event {
	r.last = max(now.UnixNano(), r.last+1)
	namespace := o.about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", o.about.Name, r.last)},
		InvolvedObject: o.about, Reason: o.reason, Message: message, Type: o.kind, Count: 1,
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now),
		Source:              corev1.EventSource{Component: r.config.Component, Host: r.config.Instance},
		ReportingController: r.config.Component, ReportingInstance: r.config.Instance,
	}
}
