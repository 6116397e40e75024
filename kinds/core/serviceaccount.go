package core

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

const mountableSecretsAnnotation = "kubernetes.io/enforce-mountable-secrets"

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

var _ = kind.Add(&Group, kind.Def[corev1.ServiceAccount]{
	Names:         kind.Names{Plural: "serviceaccounts", Short: []string{"sa"}},
	ReturnDeleted: true,
	Prepare: func(a, _ *corev1.ServiceAccount) {
		for i := range a.Secrets {
			a.Secrets[i] = corev1.ObjectReference{Name: a.Secrets[i].Name}
		}
	},
	Warn: func(a, old *corev1.ServiceAccount) []string {
		_, set := a.Annotations[mountableSecretsAnnotation]
		if old != nil {
			if _, before := old.Annotations[mountableSecretsAnnotation]; before {
				return nil
			}
		}
		if set {
			return []string{"metadata.annotations[" + mountableSecretsAnnotation + "]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
		}
		return nil
	},
	Subs: []kind.Sub[corev1.ServiceAccount]{{
		Name: "token", Body: tokenRequestKind, New: func() runtime.Object { return &authenticationv1.TokenRequest{} }, Create: createToken,
	}},
})

// createToken answers POST serviceaccounts/<name>/token.
func createToken(ctx context.Context, env kind.Env, account *corev1.ServiceAccount, body runtime.Object, _ metav1.CreateOptions) (runtime.Object, error) {
	in, ok := body.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a TokenRequest: %T", body))
	}
	request := in.DeepCopy()
	if err := prepareToken(env, request, account); err != nil {
		return nil, err
	}
	if ref := request.Spec.BoundObjectRef; ref != nil {
		if err := checkBound(ctx, env, account, ref); err != nil {
			return nil, err
		}
	}
	if most := int64(env.Settings().MaxTokenTTL.Seconds()); most > 0 && *request.Spec.ExpirationSeconds > most {
		request.Spec.ExpirationSeconds = &most
	}
	return env.IssueToken(ctx, account.Namespace, account.Name, request)
}

func prepareToken(env kind.Env, r *authenticationv1.TokenRequest, account *corev1.ServiceAccount) error {
	var p problems
	if r.Name != "" && r.Name != account.Name {
		p.invalid(field.NewPath("metadata", "name"), r.Name, "must match the service account name if specified")
	}
	if r.Namespace != "" && r.Namespace != account.Namespace {
		p.invalid(field.NewPath("metadata", "namespace"), r.Namespace, "must match the service account namespace if specified")
	}
	if r.UID != "" && r.UID != account.UID {
		return apierrors.NewConflict(schema.GroupResource{Group: tokenRequestKind.Group, Resource: tokenRequestKind.Kind}, account.Name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", r.UID, account.UID))
	}
	r.Name, r.Namespace, r.UID = account.Name, account.Namespace, account.UID
	r.CreationTimestamp = timestamp(env)
	r.Status = authenticationv1.TokenRequestStatus{}
	if len(r.Spec.Audiences) == 0 {
		r.Spec.Audiences = env.Settings().TokenAudiences
	}
	if r.Spec.ExpirationSeconds == nil {
		seconds := int64(env.Settings().DefaultTokenTTL.Seconds())
		if seconds == 0 {
			seconds = 3600
		}
		r.Spec.ExpirationSeconds = &seconds
	}
	at := field.NewPath("spec", "expirationSeconds")
	if s := *r.Spec.ExpirationSeconds; s < 600 {
		p.invalid(at, s, "may not specify a duration less than 10 minutes")
	} else if s > 1<<32 {
		p.invalid(at, s, "may not specify a duration larger than 2^32 seconds")
	}
	if len(p.list) > 0 {
		return apierrors.NewInvalid(tokenRequestKind.GroupKind(), account.Name, p.list)
	}
	return nil
}

// checkBound checks the object whose life bounds that of the token, and fills in its uid.
func checkBound(ctx context.Context, env kind.Env, account *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference) error {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	resource, namespace := map[string]string{"Pod": "pods", "Node": "nodes", "Secret": "secrets"}[ref.Kind], account.Namespace
	if gvk.Group != "" || resource == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", gvk.String()))
	}
	if ref.Kind == "Node" {
		namespace = ""
	}
	obj, err := env.Get(ctx, schema.GroupResource{Resource: resource}, namespace, ref.Name)
	if err != nil {
		return err
	}
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.ServiceAccountName != account.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account.Name))
	}
	if ref.UID != "" && ref.UID != obj.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	ref.UID = obj.GetUID()
	return nil
}
