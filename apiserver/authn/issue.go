package authn

import (
	"context"
	"crypto"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/kind"
)

// TokenIssuer signs service-account tokens.
type TokenIssuer struct {
	key       crypto.Signer
	issuer    string
	audiences []string
	lookup    Lookup
	clock     clock.PassiveClock
	maxLife   time.Duration
	extend    bool
}

func newTokenIssuer(cfg Config) *TokenIssuer {
	return &TokenIssuer{key: cfg.TokenKey, issuer: cfg.Issuer, audiences: cfg.Audiences, lookup: cfg.Lookup, clock: cfg.Clock, maxLife: cfg.MaxTokenLife, extend: cfg.ExtendTokens}
}

var tokenRequests = schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}

// IssueToken answers a TokenRequest for a service account: it checks that the account and the bound object are the ones meant, and
// returns the request with its status filled. Errors are *apierrors.StatusError. The request is not changed.
func (t *TokenIssuer) IssueToken(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	account, err := t.lookup.Get(ctx, serviceAccounts, namespace, name)
	if err != nil {
		return nil, err
	}
	out, err := t.complete(account, request)
	if err != nil {
		return nil, err
	}
	now := t.clock.Now()
	claims := Claims{
		Issuer:   t.issuer,
		Subject:  serviceaccount.MakeUsername(namespace, name),
		Audience: out.Spec.Audiences,
		IssuedAt: timestamp(now.Unix()), NotBefore: timestamp(now.Unix()), Expires: timestamp(now.Unix() + *out.Spec.ExpirationSeconds),
		ID: uuid.NewString(),
		Kubernetes: private{
			Namespace:      namespace,
			ServiceAccount: bound{name, string(account.GetUID())},
		},
	}
	if ref := out.Spec.BoundObjectRef; ref != nil {
		if err := t.bind(ctx, &claims.Kubernetes, *ref); err != nil {
			return nil, err
		}
	}
	expires := claims.Expires
	t.lengthen(&claims)
	token, err := sign(rand.Reader, t.key, claims)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	out.CreationTimestamp = metav1.NewTime(now)
	out.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expires.time())}
	return out, nil
}

// Projected volumes ask for tokens of this many seconds unless a user says otherwise (pkg/serviceaccount in Kubernetes): that is how they are known.
const (
	projectedSeconds = 3607
	extendedSeconds  = 365 * 24 * 3600
)

// lengthen gives a projected token for the API server a longer life than its holder is told of.
func (t *TokenIssuer) lengthen(c *Claims) {
	others := func(a string) bool { return !slices.Contains(t.audiences, a) }
	if !t.extend || c.Kubernetes.Pod == nil || c.Expires-c.IssuedAt != projectedSeconds || slices.ContainsFunc(c.Audience, others) {
		return
	}
	life := timestamp(extendedSeconds)
	if limit := timestamp(t.maxLife / time.Second); limit > 0 {
		life = min(life, limit)
	}
	c.Kubernetes.WarnAfter, c.Expires = c.Expires, c.IssuedAt+life
}

// IssueForSecret signs a token that is kept in a Secret and lives as long as that does.
func (t *TokenIssuer) IssueForSecret(namespace, account, accountUID, secret string) (string, error) {
	return sign(rand.Reader, t.key, Claims{Issuer: legacyIssuer, Subject: serviceaccount.MakeUsername(namespace, account),
		legacy: legacy{Namespace: namespace, Secret: secret, Account: account, AccountUID: accountUID}})
}

// complete checks the request against the account and fills what it leaves out.
func (t *TokenIssuer) complete(account kind.Object, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	out := request.DeepCopy()
	var errs field.ErrorList
	meta := field.NewPath("metadata")
	if out.Name != "" && out.Name != account.GetName() {
		errs = append(errs, field.Invalid(meta.Child("name"), out.Name, "must match the service account name if specified"))
	}
	if out.Namespace != "" && out.Namespace != account.GetNamespace() {
		errs = append(errs, field.Invalid(meta.Child("namespace"), out.Namespace, "must match the service account namespace if specified"))
	}
	if out.Spec.ExpirationSeconds == nil {
		hour := int64(3600)
		out.Spec.ExpirationSeconds = &hour
	}
	path := field.NewPath("spec", "expirationSeconds")
	switch seconds := *out.Spec.ExpirationSeconds; {
	case seconds < 600:
		errs = append(errs, field.Invalid(path, seconds, "may not specify a duration less than 10 minutes"))
	case seconds > 1<<32:
		errs = append(errs, field.Invalid(path, seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(tokenRequests, account.GetName(), errs)
	}
	if out.UID != "" && out.UID != account.GetUID() {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: tokenRequests.Group, Resource: tokenRequests.Kind}, account.GetName(),
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", out.UID, account.GetUID()))
	}
	if limit := int64(t.maxLife / time.Second); limit > 0 && *out.Spec.ExpirationSeconds > limit {
		*out.Spec.ExpirationSeconds = limit
	}
	if len(out.Spec.Audiences) == 0 {
		out.Spec.Audiences = t.audiences
	}
	out.Name, out.Namespace, out.UID = account.GetName(), account.GetNamespace(), account.GetUID()
	return out, nil
}

// bind writes what the token hangs on into its claims.
func (t *TokenIssuer) bind(ctx context.Context, claims *private, ref authenticationv1.BoundObjectReference) error {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	resources := map[string]schema.GroupResource{"Pod": pods, "Secret": secrets, "Node": nodes}
	resource, ok := resources[gvk.Kind]
	if !ok || gvk.Group != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", gvk.String()))
	}
	namespace := claims.Namespace
	if resource == nodes {
		namespace = ""
	}
	obj, err := t.lookup.Get(ctx, resource, namespace, ref.Name)
	if err != nil {
		return err
	}
	if ref.UID != "" && ref.UID != obj.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	to := &bound{ref.Name, string(obj.GetUID())}
	switch resource {
	case secrets:
		claims.Secret = to
	case nodes:
		claims.Node = to
	case pods:
		claims.Pod = to
		return t.bindPod(ctx, claims, obj)
	}
	return nil
}

// bindPod checks the pod's account, and adds the node that the pod is on.
func (t *TokenIssuer) bindPod(ctx context.Context, claims *private, obj kind.Object) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("pod %q is stored as %T", obj.GetName(), obj))
	}
	if pod.Spec.ServiceAccountName != claims.ServiceAccount.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", claims.ServiceAccount.Name))
	}
	if pod.Spec.NodeName == "" {
		return nil
	}
	claims.Node = &bound{Name: pod.Spec.NodeName}
	node, err := t.lookup.Get(ctx, nodes, "", pod.Spec.NodeName)
	switch {
	case apierrors.IsNotFound(err): // its name still tells something
		return nil
	case err != nil:
		return apierrors.NewInternalError(err)
	}
	claims.Node.UID = string(node.GetUID())
	return nil
}
