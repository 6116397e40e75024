package apiserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/apiserver/verbs"
)

// watch streams events until the client, its timeout or the server ends it. Without timeoutSeconds it lasts between once and twice the least time,
// so that clients do not come back all together; as Kubernetes (--min-request-timeout).
func (x *exchange) watch() error {
	list := x.route.ref.Name == ""
	if err := x.negotiateWatch(list); err != nil {
		return err
	}
	var opts metav1.ListOptions
	if err := options(x.route.query, &opts, metav1.Convert_url_Values_To_v1_ListOptions); err != nil {
		return err
	}
	timeout := time.Duration(float64(x.server.cfg.Limits.MinWatch) * (1 + rand.Float64()))
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(x.ctx, timeout)
	defer cancel()
	e, err := x.newEventWriter()
	if err != nil {
		return err
	}
	w, err := x.route.served.Watch(ctx, x.request(), &opts)
	if err != nil {
		return err
	}
	defer w.Close()
	defer x.watched()()
	if !w.Initial() {
		x.leave()
	}
	if x.wantsSocket() {
		return x.socket(ctx, w, e)
	}
	x.w.Header().Set("Content-Type", x.accept.Media.Stream())
	x.w.WriteHeader(http.StatusOK)
	x.w.Flush()
	return x.stream(ctx, w, e)
}

// negotiateWatch also takes the list form of partial metadata, which clients send for both.
func (x *exchange) negotiateWatch(list bool) error {
	err := x.negotiate(false, true)
	if err != nil {
		err = x.negotiate(list, true)
	}
	return err
}

func (x *exchange) stream(ctx context.Context, w *verbs.Watch, e *eventWriter) error {
	e.sent = x.server.metrics.events.WithLabelValues(x.route.ref.Group, x.route.ref.Resource)
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return nil // the stream just ends: the client comes back from where it is
		}
		verbs.ReadyEvents(ctx, x.route.served.Version, events)
		if !e.write(ctx, events) {
			return nil
		}
		x.leave() // it has begun
		if !e.carried() {
			continue
		}
		w.Carry(ctx, e.shard(), e)
		if !e.write(ctx, e.takeRest()) {
			return nil
		}
	}
}

// maxFrames is how many bytes of events are gathered before they are sent.
const maxFrames = 256 << 10

// keptFrames is how large a buffer a watch keeps while nothing happens: there may be very many watches.
const keptFrames = 16 << 10

// eventWriter encodes a watch.
type eventWriter struct {
	x      *exchange
	table  codec.TableOptions
	buffer []byte
	// send, if set, takes each event's frame by itself.
	send    func(frame []byte) error
	control *http.ResponseController
	sent    prometheus.Counter

	prompt promptWriter  // of a watch that is carried
	rest   []verbs.Event // what Deliver left
}

func (x *exchange) newEventWriter() (*eventWriter, error) {
	e := &eventWriter{x: x}
	if x.accept.As == codec.AsTable {
		opts, err := x.tableOptions()
		if err != nil {
			return nil, err
		}
		e.table = opts
	}
	return e, nil
}

// write sends events, waiting for the client where it must. False: the stream is to end.
func (e *eventWriter) write(ctx context.Context, events []verbs.Event) bool {
	for i := range events {
		if err := e.add(events[i]); err != nil {
			if ctx.Err() == nil && e.send == nil {
				e.x.server.cfg.Log.Error("an event could not be encoded", "path", e.x.req.URL.Path, "error", err)
			}
			return false
		}
	}
	if e.flush() != nil {
		return false
	}
	e.sent.Add(float64(len(events)))
	return true
}

func (e *eventWriter) add(event verbs.Event) error {
	if err := e.append(event); err != nil {
		return err
	}
	if e.send != nil {
		err := e.send(e.buffer)
		e.buffer = e.buffer[:0]
		return err
	}
	if len(e.buffer) > maxFrames {
		return e.flush()
	}
	return nil
}

func (e *eventWriter) append(event verbs.Event) error {
	doc, err := e.document(event)
	if err == nil {
		e.buffer = codec.AppendEvent(e.buffer, e.x.accept.Media, string(event.Type), doc)
	}
	return err
}

// hurry gives the client its time to read what is sent next. One that does not read holds up nobody, as each watch is a position in the ring of
// events, but what it was to be sent is memory.
func (e *eventWriter) hurry() {
	if e.control == nil {
		e.control = http.NewResponseController(e.x.w)
	}
	_ = e.control.SetWriteDeadline(time.Now().Add(e.x.server.cfg.Limits.Stall)) // where there are no deadlines, the client has all the time
}

func (e *eventWriter) flush() error {
	if len(e.buffer) == 0 {
		return nil
	}
	e.hurry()
	_, err := e.x.w.Write(e.buffer)
	e.empty()
	if err == nil {
		err = e.x.w.FlushError()
		if errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
	}
	return err
}

// empty lets the buffer's content go, and a large buffer with it.
func (e *eventWriter) empty() {
	if cap(e.buffer) > keptFrames {
		e.buffer = nil
	}
	e.buffer = e.buffer[:0]
}

// document is the object of an event in the client's form.
func (e *eventWriter) document(event verbs.Event) ([]byte, error) {
	v := e.x.route.served.Version
	switch event.Type {
	case watch.Error:
		return trim(codec.Encode(event.Status, statusKind, e.x.accept.Media))
	case watch.Bookmark:
		return e.bookmark(event)
	}
	if e.x.accept.As == codec.AsTable {
		return e.row(event.Object)
	}
	return codec.Item(event.Object, v, e.x.accept)
}

// row shows an object as a table, whose columns are described in the first event only.
func (e *eventWriter) row(o *stored.Object) ([]byte, error) {
	opts := e.table
	opts.Now = e.x.server.cfg.Clock.Now()
	table, err := codec.Table(e.x.route.served.Version, metav1.ListMeta{ResourceVersion: o.Hub().GetResourceVersion()}, []*stored.Object{o}, e.x.accept, opts)
	e.table.NoHeaders = true
	return trim(table, err)
}

func (e *eventWriter) bookmark(event verbs.Event) ([]byte, error) {
	v := e.x.route.served.Version
	obj := verbs.BookmarkObject(v, event)
	switch e.x.accept.As {
	case codec.AsObject:
		return trim(codec.Encode(obj, v.GroupVersionKind, e.x.accept.Media))
	case codec.AsMetadata:
		partial := &metav1.PartialObjectMetadata{}
		if m, ok := obj.(metav1.Object); ok {
			partial.ResourceVersion, partial.Annotations = m.GetResourceVersion(), m.GetAnnotations()
		}
		return trim(codec.Encode(partial, stored.PartialKind(e.x.accept.MetaVersion), e.x.accept.Media))
	}
	m, ok := obj.(metav1.Object)
	if !ok {
		return nil, apierrors.NewInternalError(errors.New("a bookmark without metadata"))
	}
	return trim(codec.BookmarkTable(v, m, e.x.accept, e.table))
}

// trim drops the newline that ends a JSON document.
func trim(doc []byte, err error) ([]byte, error) {
	if n := len(doc); err == nil && n > 0 && doc[n-1] == '\n' {
		doc = doc[:n-1]
	}
	return doc, err
}
