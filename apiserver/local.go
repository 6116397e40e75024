package apiserver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/apiserver/verbs"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
)

// Local reaches the gate from within the process, as one user. What it returns are the store's own objects where the version asked for is the hub:
// never to be changed. What it is given is copied. It satisfies client.Transport.
type Local struct {
	server  *Server
	user    user.Info
	manager string
}

// Local makes a transport for who.
func (s *Server) Local(who user.Info) *Local {
	name := who.GetName()
	return &Local{server: s, user: who, manager: name[strings.LastIndexByte(name, ':')+1:]}
}

// enter finds what serves ref and asks whether the user may do verb to it. narrowed are the options of a list or watch: a right may hold for a selection only.
func (l *Local) enter(ctx context.Context, verb string, ref resource.Ref, narrowed ...metav1.ListOptions) (context.Context, *verbs.Served, *verbs.Request, error) {
	served, ok := l.server.registry.Lookup(ref.GroupVersionResource)
	if !ok {
		return ctx, nil, nil, apierrors.NewGenericServerResponse(404, verb, ref.GroupResource(), ref.Name, "404 page not found", 0, true)
	}
	if served.Kind.Scope == kind.Cluster {
		ref.Namespace = ""
	}
	attributes := l.attributes(verb, ref)
	for _, opts := range narrowed {
		setSelectors(&attributes, opts.FieldSelector, opts.LabelSelector)
		if attributes.Name == "" && verb != "deletecollection" {
			attributes.Name = selectedName(opts.FieldSelector)
		}
	}
	record := l.recordOf(ctx)
	if err := l.server.decide(ctx, attributes, record); err != nil {
		return ctx, nil, nil, err
	}
	if ref.Subresource == "" && !slices.Contains(served.Kind.Verbs, verb) {
		return ctx, nil, nil, apierrors.NewMethodNotSupported(ref.GroupResource(), verb)
	}
	rq := &verbs.Request{Version: served.Version, Ref: ref, User: l.user, Manager: l.manager, Warn: func(text string) {
		l.server.cfg.Log.Debug("warning", "user", l.user.GetName(), "resource", ref.Resource, "name", ref.Name, "text", text)
	}}
	if record != nil {
		rq.Annotate = record.Annotate
		deprecation(record, served.Version)
	}
	return withUser(ctx, l.user), served, rq, nil
}

func (l *Local) attributes(verb string, ref resource.Ref) authorizer.AttributesRecord {
	a := authorizer.AttributesRecord{User: l.user, Verb: verb, Namespace: ref.Namespace, APIGroup: ref.Group, APIVersion: ref.Version,
		Resource: ref.Resource, Subresource: ref.Subresource, Name: ref.Name, ResourceRequest: true}
	if ref.Group == "" && ref.Resource == "namespaces" { // a Namespace counts as within itself, as in its URL
		a.Namespace = ref.Name
	}
	return a
}

func (l *Local) mayCreate(ref resource.Ref) func(context.Context) error {
	return func(ctx context.Context) error { return l.server.allow(ctx, l.attributes("create", ref)) }
}

// leave counts a request, and makes a panic in a kind or plugin the error of that request alone.
func (l *Local) leave(verb string, ref resource.Ref, start time.Time, err *error) {
	if p := recover(); p != nil {
		l.server.cfg.Log.Error("a request panicked", "verb", verb, "resource", ref.Resource, "namespace", ref.Namespace, "name", ref.Name,
			"user", l.user.GetName(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		l.server.metrics.panics.Inc()
		*err = apierrors.NewInternalError(errors.New("this request caused a fault in the server, which logged it"))
	}
	l.server.observeLocal(verb, ref, start)
}

// Get reads an object, or its scale.
func (l *Local) Get(ctx context.Context, ref resource.Ref, opts metav1.GetOptions) (out runtime.Object, err error) {
	ctx, record := l.record(ctx, "get", ref, nil, nil)
	defer record.end(&out, &err)
	defer l.leave("get", ref, l.server.cfg.Clock.Now(), &err)
	if far, err := l.far(ctx, "get", ref); err != nil {
		return nil, err
	} else if far != nil {
		return far.Get(ctx, ref, opts)
	}
	ctx, served, rq, err := l.enter(ctx, "get", ref)
	if err != nil {
		return nil, err
	}
	if ref.Subresource == "scale" && served.Kind.Scale != nil {
		return served.GetScale(ctx, rq, &opts)
	}
	if err := part(served, rq); err != nil {
		return nil, err
	}
	o, err := served.Get(ctx, rq, &opts)
	if err != nil {
		return nil, err
	}
	return o.In(served.Version)
}

// List reads a collection.
func (l *Local) List(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (_ []runtime.Object, _ metav1.ListMeta, err error) {
	ctx, record := l.record(ctx, "list", ref, nil, nil)
	defer record.end(nil, &err)
	defer l.leave("list", ref, l.server.cfg.Clock.Now(), &err)
	if far, err := l.far(ctx, "list", ref, opts); err != nil {
		return nil, metav1.ListMeta{}, err
	} else if far != nil {
		return far.List(ctx, ref, opts)
	}
	ctx, served, rq, err := l.enter(ctx, "list", ref, opts)
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	list, err := served.List(ctx, rq, &opts)
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	if err := verbs.Ready(ctx, served.Version, list.Items); err != nil {
		return nil, metav1.ListMeta{}, apierrors.NewInternalError(err)
	}
	out := make([]runtime.Object, len(list.Items))
	for i, o := range list.Items {
		if out[i], err = o.In(served.Version); err != nil {
			return nil, metav1.ListMeta{}, apierrors.NewInternalError(err)
		}
	}
	return out, list.Meta, nil
}

// Create adds an object, or posts to a subresource.
func (l *Local) Create(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.CreateOptions) (out runtime.Object, err error) {
	ctx, record := l.record(ctx, "create", ref, obj, nil)
	defer record.end(&out, &err)
	defer l.leave("create", ref, l.server.cfg.Clock.Now(), &err)
	if far, err := l.far(ctx, "create", ref); err != nil {
		return nil, err
	} else if far != nil {
		return far.Create(ctx, ref, obj, opts)
	}
	ctx, served, rq, err := l.enter(ctx, "create", ref)
	if err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidateCreateOptions(&opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("CreateOptions").GroupKind(), "", errs)
	}
	if ref.Subresource != "" {
		return l.createSub(ctx, served, rq, obj, &opts)
	}
	hub, err := l.hub(served, obj)
	if err != nil {
		return nil, err
	}
	rq.Ref.Name = ""
	o, err := served.Create(ctx, rq, hub, &opts)
	if err != nil {
		return nil, err
	}
	return o.In(served.Version)
}

func (l *Local) createSub(ctx context.Context, served *verbs.Served, rq *verbs.Request, obj runtime.Object, opts *metav1.CreateOptions) (runtime.Object, error) {
	for i := range served.Kind.Subs {
		if sub := &served.Kind.Subs[i]; sub.Name == rq.Ref.Subresource && sub.Create != nil {
			answer, err := served.CreateSub(ctx, rq, sub, obj.DeepCopyObject(), opts)
			if err == nil && answer == nil {
				answer = &metav1.Status{Status: metav1.StatusSuccess}
			}
			return answer, err
		}
	}
	return nil, apierrors.NewMethodNotSupported(rq.Ref.GroupResource(), "create")
}

// hub copies what a caller passed and turns it into the hub version, defaulted.
func (l *Local) hub(served *verbs.Served, obj runtime.Object) (kind.Object, error) {
	if obj == nil {
		return nil, apierrors.NewBadRequest("no object was given")
	}
	k, v := served.Kind, served.Version
	c := obj.DeepCopyObject()
	if u, ok := c.(*unstructured.Unstructured); ok {
		typed := v.New()
		if _, dynamic := typed.(*unstructured.Unstructured); !dynamic {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is no valid %s: %v", v.Kind, err))
			}
			c = typed
		}
	}
	if v.Settle != nil {
		u, err := settled(c, v)
		if err != nil {
			return nil, err
		}
		return verbs.ToHub(k, v, u)
	}
	if reflect.TypeOf(c) == reflect.TypeOf(v.New()) {
		c.GetObjectKind().SetGroupVersionKind(v.GroupVersionKind)
		return verbs.ToHub(k, v, c)
	}
	if reflect.TypeOf(c) == reflect.TypeOf(k.New()) {
		c.GetObjectKind().SetGroupVersionKind(k.Hub)
		return verbs.ToHub(k, &k.Versions[0], c)
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("%T cannot be handled as a %s", obj, v.GroupVersionKind))
}

// settled makes an object of a kind without a Go type, from a caller's own type if it has one.
func settled(c runtime.Object, v *kind.Version) (runtime.Object, error) {
	u, plain := c.(*unstructured.Unstructured)
	if !plain {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%T cannot be handled as a %s: %v", c, v.GroupVersionKind, err))
		}
		u = &unstructured.Unstructured{Object: content}
	}
	u.SetGroupVersionKind(v.GroupVersionKind)
	if _, err := v.Settle(u); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is no valid %s: %v", v.Kind, err))
	}
	return u, nil
}

// Update replaces an object or a subresource that is part of it.
func (l *Local) Update(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.UpdateOptions) (out runtime.Object, err error) {
	ctx, record := l.record(ctx, "update", ref, obj, nil)
	defer record.end(&out, &err)
	defer l.leave("update", ref, l.server.cfg.Clock.Now(), &err)
	if far, err := l.far(ctx, "update", ref); err != nil {
		return nil, err
	} else if far != nil {
		return far.Update(ctx, ref, obj, opts)
	}
	ctx, served, rq, err := l.enter(ctx, "update", ref)
	if err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidateUpdateOptions(&opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("UpdateOptions").GroupKind(), "", errs)
	}
	if scale, ok := obj.(*autoscalingv1.Scale); ok && ref.Subresource == "scale" && served.Kind.Scale != nil {
		return served.UpdateScale(ctx, rq, scale, &opts)
	}
	if err := part(served, rq); err != nil {
		return nil, err
	}
	hub, err := l.hub(served, obj)
	if err != nil {
		return nil, err
	}
	o, _, err := served.Update(ctx, rq, hub, &opts, l.mayCreate(ref))
	if err != nil {
		return nil, err
	}
	return o.In(served.Version)
}

// part refuses a subresource that is no part of the object.
func part(served *verbs.Served, rq *verbs.Request) error {
	switch sub := rq.Ref.Subresource; {
	case sub == "", sub == "status" && served.Kind.HasStatus:
		return nil
	case slices.ContainsFunc(served.Kind.Subs, func(s kind.ErasedSub) bool { return s.Name == sub && s.Replace != nil }):
		return nil
	}
	return apierrors.NewGenericServerResponse(404, "", rq.Ref.GroupResource(), rq.Ref.Name, "404 page not found", 0, true)
}

// Patch patches an object or a subresource that is part of it.
func (l *Local) Patch(ctx context.Context, ref resource.Ref, typ types.PatchType, body []byte, opts metav1.PatchOptions) (out runtime.Object, err error) {
	ctx, record := l.record(ctx, "patch", ref, nil, body)
	defer record.end(&out, &err)
	defer l.leave("patch", ref, l.server.cfg.Clock.Now(), &err)
	if far, err := l.far(ctx, "patch", ref); err != nil {
		return nil, err
	} else if far != nil {
		return far.Patch(ctx, ref, typ, body, opts)
	}
	ctx, served, rq, err := l.enter(ctx, "patch", ref)
	if err != nil {
		return nil, err
	}
	opts.FieldValidation = strictness(opts.FieldValidation)
	if ref.Subresource == "scale" && served.Kind.Scale != nil {
		return served.PatchScale(ctx, rq, typ, body, &opts)
	}
	if err := part(served, rq); err != nil {
		return nil, err
	}
	o, _, err := served.Patch(ctx, rq, typ, body, &opts, l.mayCreate(ref))
	if err != nil {
		return nil, err
	}
	return o.In(served.Version)
}

// Delete deletes an object: it returns its last state, or the state in which it waits for its end.
func (l *Local) Delete(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions) (out runtime.Object, err error) {
	ctx, record := l.record(ctx, "delete", ref, &opts, nil)
	defer record.end(&out, &err)
	defer l.leave("delete", ref, l.server.cfg.Clock.Now(), &err)
	if far, err := l.far(ctx, "delete", ref); err != nil {
		return nil, err
	} else if far != nil {
		return far.Delete(ctx, ref, opts)
	}
	ctx, served, rq, err := l.enter(ctx, "delete", ref)
	if err != nil {
		return nil, err
	}
	if err := l.server.allowUnsafe(ctx, &opts, func() authorizer.AttributesRecord { return l.attributes("delete", ref) }); err != nil {
		return nil, err
	}
	o, _, err := served.Delete(ctx, rq, &opts)
	if err != nil {
		return nil, err
	}
	return o.In(served.Version)
}

// DeleteCollection deletes what list selects.
func (l *Local) DeleteCollection(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions, list metav1.ListOptions) (err error) {
	ctx, record := l.record(ctx, "deletecollection", ref, &opts, nil)
	defer record.end(nil, &err)
	defer l.leave("deletecollection", ref, l.server.cfg.Clock.Now(), &err)
	if far, err := l.far(ctx, "deletecollection", ref, list); err != nil {
		return err
	} else if far != nil {
		return far.DeleteCollection(ctx, ref, opts, list)
	}
	ctx, served, rq, err := l.enter(ctx, "deletecollection", ref, list)
	if err != nil {
		return err
	}
	if err := refuseUnsafe(&opts); err != nil {
		return err
	}
	_, err = served.DeleteCollection(ctx, rq, &opts, &list)
	return err
}

// Watch streams changes until it is stopped, ctx ends, or the server does.
func (l *Local) Watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (watch.Interface, error) {
	ctx, record := l.record(ctx, "watch", ref, nil, nil)
	w, err := l.watch(ctx, ref, opts, record)
	if err != nil {
		record.end(nil, &err)
	}
	return w, err
}

func (l *Local) watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions, record *localRecord) (watch.Interface, error) {
	if far, err := l.far(ctx, "watch", ref, opts); err != nil {
		return nil, err
	} else if far != nil {
		record.started()
		return far.Watch(ctx, ref, opts)
	}
	ctx, served, rq, err := l.enter(ctx, "watch", ref, opts)
	if err != nil {
		return nil, err
	}
	var cancel context.CancelFunc
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*opts.TimeoutSeconds)*time.Second)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	w, err := served.Watch(ctx, rq, &opts)
	if err != nil {
		cancel()
		return nil, err
	}
	unhook := context.AfterFunc(l.server.streams, cancel)
	out := &localWatch{events: make(chan watch.Event, 64), stop: cancel}
	record.started()
	go func() {
		defer close(out.events)
		defer record.end(nil, &err)
		defer cancel()
		defer unhook()
		defer w.Close()
		out.run(ctx, w, served.Version)
	}()
	return out, nil
}

// localWatch is a watch whose objects are the store's own.
type localWatch struct {
	events chan watch.Event
	stop   context.CancelFunc
}

func (w *localWatch) ResultChan() <-chan watch.Event { return w.events }
func (w *localWatch) Stop()                          { w.stop() }

func (w *localWatch) run(ctx context.Context, source *verbs.Watch, v *kind.Version) {
	for {
		events, err := source.Next(ctx)
		if err != nil {
			return
		}
		verbs.ReadyEvents(ctx, v, events)
		for i := range events {
			select {
			case w.events <- localEvent(v, events[i]):
			case <-ctx.Done():
				return
			}
		}
	}
}

func localEvent(v *kind.Version, e verbs.Event) watch.Event {
	switch e.Type {
	case watch.Error:
		return watch.Event{Type: watch.Error, Object: e.Status}
	case watch.Bookmark:
		return watch.Event{Type: watch.Bookmark, Object: verbs.BookmarkObject(v, e)}
	}
	obj, err := inVersion(e.Object, v)
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		return watch.Event{Type: watch.Error, Object: &status}
	}
	return watch.Event{Type: e.Type, Object: obj}
}

func inVersion(o *stored.Object, v *kind.Version) (runtime.Object, error) {
	if o == nil {
		return nil, errors.New("an event without an object")
	}
	return o.In(v)
}
