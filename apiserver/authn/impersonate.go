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

// Impersonate returns the user as whom a request shall act by its Impersonate-* headers, after who was found to be allowed each part of
// it (verb "impersonate"). It returns who and false when nobody is impersonated. The headers are removed. The error is an
// *apierrors.StatusError.
func Impersonate(ctx context.Context, h http.Header, who user.Info, a authorizer.Authorizer) (user.Info, bool, error) {
	wanted, asked, err := readImpersonation(h)
	if err != nil || !asked {
		return who, false, err
	}
	for _, attributes := range impersonationChecks(wanted) {
		attributes.User = who
		decision, reason, err := a.Authorize(ctx, attributes)
		if err != nil || decision != authorizer.DecisionAllow {
			return nil, false, authz.Forbidden(attributes, reason)
		}
	}
	stripImpersonation(h)
	return completeImpersonation(wanted), true, nil
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
func completeImpersonation(w impersonation) user.Info {
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
