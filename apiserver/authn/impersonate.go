package authn

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver/authz"
)

// Question is a request as the authorizer will be asked about it, with the user who really makes it.
type Question interface {
	Attributes() authorizer.AttributesRecord
}

// Impersonate returns the user as whom a request shall act by its Impersonate-* headers, after who was found to be allowed each part of
// it. It returns who and false when nobody is impersonated. The headers are removed. The error is an *apierrors.StatusError.
//
// The right may be the old one, verb "impersonate", which holds for every request, or one of those of constrained impersonation (KEP-5284), which hold for
// chosen requests: see modes. The constrained ones are tried first. The refusal that is told is that of the mode which came furthest.
func Impersonate(ctx context.Context, h http.Header, who user.Info, a authorizer.Authorizer, request Question) (user.Info, bool, error) {
	if !impersonates(h) {
		return who, false, nil
	}
	wanted, asked, err := readImpersonation(h)
	if err != nil || !asked {
		return who, false, err
	}
	as, err := impersonateConstrained(ctx, wanted, request, who, a)
	if as == nil {
		if e := allowedAll(ctx, a, who, impersonationChecks(wanted)); e == nil {
			as, err = completeImpersonation(wanted), nil
		} else if err == nil {
			err = e
		}
	}
	if err != nil {
		return nil, false, err
	}
	stripImpersonation(h)
	return as, true, nil
}

// impersonates tells whether there is any of the headers.
func impersonates(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			return true
		}
	}
	return false
}

// allowedAll returns the first refusal.
func allowedAll(ctx context.Context, a authorizer.Authorizer, who user.Info, checks []authorizer.AttributesRecord) error {
	for _, attributes := range checks {
		attributes.User = who
		decision, reason, err := a.Authorize(ctx, attributes)
		if decision == authorizer.DecisionAllow {
			continue
		}
		if err != nil {
			reason = strings.TrimSuffix(err.Error()+": "+reason, ": ")
		}
		return authz.Forbidden(attributes, reason)
	}
	return nil
}

// impersonation is what the headers ask for.
type impersonation struct {
	user.DefaultInfo
	// namespace and account are set when the user is a service account.
	namespace, account string
}

func readImpersonation(h http.Header) (impersonation, bool, error) {
	var w impersonation
	w.Name = h.Get(authenticationv1.ImpersonateUserHeader)
	w.UID = h.Get(authenticationv1.ImpersonateUIDHeader)
	w.Groups = slices.Clone(h.Values(authenticationv1.ImpersonateGroupHeader))
	w.Extra = map[string][]string{}
	for name, values := range h {
		if key, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix); ok {
			key = unescape(strings.ToLower(key))
			w.Extra[key] = append(w.Extra[key], values...)
		}
	}
	if w.Name == "" {
		if w.UID != "" || len(w.Groups) > 0 || len(w.Extra) > 0 {
			return w, false, apierrors.NewBadRequest(fmt.Sprintf("requested groups %q, uid %q and extra %q without impersonating a user: set %s too",
				w.Groups, w.UID, w.Extra, authenticationv1.ImpersonateUserHeader))
		}
		return w, false, nil
	}
	if namespace, name, err := serviceaccount.SplitUsername(w.Name); err == nil {
		w.namespace, w.account = namespace, name
	}
	return w, true, nil
}

// impersonationChecks lists what must be allowed, in a fixed order.
func impersonationChecks(w impersonation) []authorizer.AttributesRecord {
	check := func(group, version, resource, sub, namespace, name string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: "impersonate", APIGroup: group, APIVersion: version, Resource: resource, Subresource: sub,
			Namespace: namespace, Name: name, ResourceRequest: true}
	}
	out := []authorizer.AttributesRecord{check("", "v1", "users", "", "", w.Name)}
	if w.account != "" {
		out[0] = check("", "v1", "serviceaccounts", "", w.namespace, w.account)
	}
	for _, g := range w.Groups {
		out = append(out, check("", "v1", "groups", "", "", g))
	}
	keys := make([]string, 0, len(w.Extra))
	for k := range w.Extra {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		for _, v := range w.Extra[k] {
			out = append(out, check(authenticationv1.GroupName, "v1", "userextras", k, "", v))
		}
	}
	if w.UID != "" {
		out = append(out, check(authenticationv1.GroupName, "v1", "uids", "", "", w.UID))
	}
	return out
}

// completeImpersonation adds the groups that follow from who the user is.
func completeImpersonation(w impersonation) *user.DefaultInfo {
	out := w.DefaultInfo
	if w.account != "" && len(out.Groups) == 0 {
		out.Groups = serviceaccount.MakeGroupNames(w.namespace)
	}
	implied := user.AllAuthenticated
	if out.Name == user.Anonymous {
		implied = user.AllUnauthenticated
	}
	if !slices.Contains(out.Groups, implied) && !slices.Contains(out.Groups, user.AllUnauthenticated) {
		out.Groups = append(out.Groups, implied)
	}
	return &out
}

func stripImpersonation(h http.Header) {
	h.Del(authenticationv1.ImpersonateUserHeader)
	h.Del(authenticationv1.ImpersonateGroupHeader)
	h.Del(authenticationv1.ImpersonateUIDHeader)
	for name := range h {
		if strings.HasPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix) {
			h.Del(name)
		}
	}
}
