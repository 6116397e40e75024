package apiserver

import (
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/verbs"
	"github.com/yare-project/yare/kind"
)

// negotiatePlain is for answers that are no stored objects: no tables, no partial metadata.
func (x *exchange) negotiatePlain() error {
	accept, err := codec.Negotiate(x.req.Header.Get("Accept"), codec.Offer{Protobuf: true})
	x.accept = accept
	return err
}

func (x *exchange) serveScale() error {
	if x.route.ref.Name == "" {
		return errNoRoute
	}
	if err := x.negotiatePlain(); err != nil {
		return err
	}
	var scale *autoscalingv1.Scale
	var err error
	switch x.route.verb {
	case "get":
		var opts metav1.GetOptions
		if err := options(x.route.query, &opts, metav1.Convert_url_Values_To_v1_GetOptions); err != nil {
			return err
		}
		scale, err = x.route.served.GetScale(x.ctx, x.request(), &opts)
	case "update":
		scale, err = x.updateScale()
	case "patch":
		scale, err = x.patchScale()
	default:
		return errNoMethod
	}
	if err != nil {
		return err
	}
	return x.writeObject(http.StatusOK, scale, verbs.ScaleKind)
}

func (x *exchange) updateScale() (*autoscalingv1.Scale, error) {
	var opts metav1.UpdateOptions
	if err := options(x.route.query, &opts, metav1.Convert_url_Values_To_v1_UpdateOptions); err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidateUpdateOptions(&opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("UpdateOptions").GroupKind(), "", errs)
	}
	obj, err := x.decode(codec.Target{Kind: verbs.ScaleKind, New: func() runtime.Object { return &autoscalingv1.Scale{} }}, opts.FieldValidation)
	if err != nil {
		return nil, err
	}
	x.dryRun = len(opts.DryRun) > 0
	return x.route.served.UpdateScale(x.ctx, x.request(), obj.(*autoscalingv1.Scale), &opts)
}

func (x *exchange) patchScale() (*autoscalingv1.Scale, error) {
	typ, opts, body, err := x.readPatch()
	if err != nil {
		return nil, err
	}
	return x.route.served.PatchScale(x.ctx, x.request(), typ, body, opts)
}

// serveCreateSub answers a POST to a subresource such as binding, eviction or token.
func (x *exchange) serveCreateSub(sub *kind.ErasedSub) error {
	if x.route.verb != "create" || x.route.ref.Name == "" {
		return errNoMethod
	}
	if err := x.negotiatePlain(); err != nil {
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
	body, err := x.decode(subTarget(x.route.served.Version, sub), opts.FieldValidation)
	if err != nil {
		return err
	}
	answer, err := x.route.served.CreateSub(x.ctx, x.request(), sub, body, &opts)
	if err != nil {
		return err
	}
	if answer == nil {
		answer = &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}
	}
	return x.writeAnswer(answer, sub)
}

func subTarget(v *kind.Version, sub *kind.ErasedSub) codec.Target {
	if sub.New == nil {
		return codec.Target{Kind: v.GroupVersionKind, New: v.New}
	}
	return codec.Target{Kind: sub.Body, Older: sub.Older, New: sub.New}
}

func (x *exchange) writeAnswer(answer runtime.Object, sub *kind.ErasedSub) error {
	if status, ok := answer.(*metav1.Status); ok {
		code := http.StatusCreated
		if status.Code != 0 {
			code = int(status.Code)
		}
		return x.writeStatus(status, code)
	}
	gvk := answer.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		gvk = subTarget(x.route.served.Version, sub).Kind
	}
	return x.writeObject(http.StatusCreated, answer, gvk)
}
