package apiserver

import (
	"context"
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/verbs"
	"github.com/yare-project/yare/kind"
)

var noResource schema.GroupResource

// errNoRoute is answered by the plain text that clients take for "no such path".
var errNoRoute = errors.New("404 page not found")

// errNoMethod is for a path that is there, but not for the request's method; errNoResource for a path of the API where nothing is.
var (
	errNoMethod   = apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false)
	errNoResource = apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)
)

// serve goes on by what the request is about.
func (x *exchange) serve() error {
	switch r := &x.route; {
	case r.remote:
		return x.serveRemote()
	case !r.resource:
		return x.serveNonResource()
	case r.served == nil:
		return errNoRoute
	}
	if r := &x.route; r.served.Version.Warning != "" {
		x.warn(r.served.Version.Warning)
	}
	switch r := &x.route; {
	case r.connect != nil:
		return x.serveConnect()
	case r.ref.Subresource == "":
		return x.serveObject()
	case r.ref.Subresource == "scale" && r.served.Kind.Scale != nil && !r.served.Version.NoScale:
		return x.serveScale()
	case r.ref.Subresource == "status" && r.served.Kind.HasStatus && !r.served.Version.NoStatus:
		return x.servePart()
	}
	if sub := x.sub(); sub != nil && sub.Create != nil {
		return x.serveCreateSub(sub)
	} else if sub != nil {
		return x.servePart()
	}
	return errNoRoute
}

func (x *exchange) sub() *kind.ErasedSub {
	subs := x.route.served.Kind.Subs
	for i := range subs {
		if subs[i].Name == x.route.ref.Subresource {
			return &subs[i]
		}
	}
	return nil
}

// serveObject serves an object or a collection by verb.
func (x *exchange) serveObject() error {
	r := &x.route
	if namespaced := r.served.Kind.Scope == kind.Namespaced; namespaced != (r.ref.Namespace != "") {
		if !namespaced || r.ref.Name != "" || r.verb == "create" && !r.served.Kind.Virtual || r.verb == "deletecollection" {
			return errNoRoute
		}
	}
	if !slices.Contains(r.served.Kind.Verbs, r.verb) || r.verb == "create" && r.ref.Name != "" || (r.verb == "update" || r.verb == "patch") && r.ref.Name == "" {
		return errNoMethod
	}
	switch r.verb {
	case "get":
		return x.get()
	case "list":
		return x.list()
	case "watch":
		return x.watch()
	case "create":
		return x.create()
	case "update":
		return x.update()
	case "patch":
		return x.patch()
	case "delete":
		return x.delete()
	case "deletecollection":
		return x.deleteCollection()
	}
	return errNoMethod
}

// servePart serves a subresource that is a part of the object itself.
func (x *exchange) servePart() error {
	if x.route.ref.Name == "" {
		return errNoRoute
	}
	sub := x.sub()
	switch verb := x.route.verb; {
	case verb == "update":
		return x.update()
	case sub != nil && sub.NoPatch:
	case verb == "get":
		return x.get()
	case verb == "patch":
		return x.patch()
	}
	return errNoMethod
}

// request is what the verbs need to know.
func (x *exchange) request() *verbs.Request {
	return &verbs.Request{Version: x.route.served.Version, Ref: x.route.ref, User: x.user, Manager: verbs.ManagerOf(x.req.UserAgent()), Warn: x.warn, Annotate: x.annotate, Trace: x.trace}
}

// negotiate settles how the answer is written, before anything is done.
func (x *exchange) negotiate(list, watch bool) error {
	accept, err := codec.Negotiate(x.req.Header.Get("Accept"),
		codec.Offer{Protobuf: x.route.served.Protobuf, Transform: !x.route.served.Kind.Virtual, List: list, Watch: watch})
	x.accept = accept
	return err
}

// mayCreate asks whether the user may create what an update or apply would make.
func (x *exchange) mayCreate(ctx context.Context) error {
	a := x.attributes()
	a.Verb = "create"
	return x.server.allow(ctx, a)
}

func (x *exchange) get() error {
	if err := x.negotiate(false, false); err != nil {
		return err
	}
	var opts metav1.GetOptions
	if err := options(x.route.query, &opts, metav1.Convert_url_Values_To_v1_GetOptions); err != nil {
		return err
	}
	o, err := x.route.served.Get(x.ctx, x.request(), &opts)
	x.trace.Mark("read")
	if err != nil {
		return err
	}
	return x.writeStored(http.StatusOK, o)
}

func (x *exchange) list() error {
	if err := x.negotiate(true, false); err != nil {
		return err
	}
	var opts metav1.ListOptions
	if err := options(x.route.query, &opts, metav1.Convert_url_Values_To_v1_ListOptions); err != nil {
		return err
	}
	l, err := x.route.served.List(x.ctx, x.request(), &opts)
	x.trace.Mark("read")
	if err != nil {
		return err
	}
	return x.writeList(l)
}

func (x *exchange) create() error {
	if err := x.negotiate(false, false); err != nil {
		return err
	}
	var opts metav1.CreateOptions
	if err := options(x.route.query, &opts, metav1.Convert_url_Values_To_v1_CreateOptions); err != nil {
		return err
	}
	if errs := metav1validation.ValidateCreateOptions(&opts); len(errs) > 0 {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("CreateOptions").GroupKind(), "", errs)
	}
	x.dryRun = len(opts.DryRun) > 0
	obj, err := x.decodeHub(opts.FieldValidation)
	if err != nil {
		return err
	}
	o, err := x.route.served.Create(x.ctx, x.request(), obj, &opts)
	if err != nil {
		return err
	}
	return x.writeStored(http.StatusCreated, o)
}

func (x *exchange) update() error {
	if err := x.negotiate(false, false); err != nil {
		return err
	}
	var opts metav1.UpdateOptions
	if err := options(x.route.query, &opts, metav1.Convert_url_Values_To_v1_UpdateOptions); err != nil {
		return err
	}
	if errs := metav1validation.ValidateUpdateOptions(&opts); len(errs) > 0 {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("UpdateOptions").GroupKind(), "", errs)
	}
	x.dryRun = len(opts.DryRun) > 0
	obj, err := x.decodeHub(opts.FieldValidation)
	if err != nil {
		return err
	}
	o, created, err := x.route.served.Update(x.ctx, x.request(), obj, &opts, x.mayCreate)
	if err != nil {
		return err
	}
	return x.writeStored(createdOr(created), o)
}

func (x *exchange) patch() error {
	if err := x.negotiate(false, false); err != nil {
		return err
	}
	typ, opts, body, err := x.readPatch()
	if err != nil {
		return err
	}
	o, created, err := x.route.served.Patch(x.ctx, x.request(), typ, body, opts, x.mayCreate)
	if err != nil {
		return err
	}
	return x.writeStored(createdOr(created), o)
}

func createdOr(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

func (x *exchange) delete() error {
	if err := x.negotiate(false, false); err != nil {
		return err
	}
	opts, err := x.deleteOptions()
	if err != nil {
		return err
	}
	if err := x.server.allowUnsafe(x.ctx, opts, x.attributes); err != nil {
		return err
	}
	o, removed, err := x.route.served.Delete(x.ctx, x.request(), opts)
	if err != nil {
		return err
	}
	if !removed {
		code := http.StatusOK
		if opts.OrphanDependents != nil && !*opts.OrphanDependents {
			code = http.StatusAccepted
		}
		return x.writeStored(code, o)
	}
	if x.route.served.Kind.ReturnDeleted {
		return x.writeStored(http.StatusOK, o)
	}
	return x.writeStatus(&metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: o.Hub().GetName(), Group: x.route.ref.Group, Kind: x.route.ref.Resource, UID: o.Hub().GetUID()}}, http.StatusOK)
}

func (x *exchange) deleteCollection() error {
	if err := x.negotiate(true, false); err != nil {
		return err
	}
	opts, err := x.deleteOptions()
	if err != nil {
		return err
	}
	if err := refuseUnsafe(opts); err != nil {
		return err
	}
	var list metav1.ListOptions
	if err := options(x.route.query, &list, metav1.Convert_url_Values_To_v1_ListOptions); err != nil {
		return err
	}
	l, err := x.route.served.DeleteCollection(x.ctx, x.request(), opts, &list)
	if err != nil {
		return err
	}
	return x.writeList(l)
}
