package authz

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// escape keeps what a client sent from looking like HTML in a browser.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Denial is the sentence that tells a user what was refused, in the words that clients know.
func Denial(a authorizer.Attributes, reason string) string {
	name := ""
	if who := a.GetUser(); who != nil {
		name = who.GetName()
	}
	var text string
	switch resource := resourceOf(a); {
	case !a.IsResourceRequest():
		text = fmt.Sprintf("User %q cannot %s path %q", name, a.GetVerb(), a.GetPath())
	case a.GetNamespace() != "":
		text = fmt.Sprintf("User %q cannot %s resource %q in API group %q in the namespace %q", name, a.GetVerb(), resource, a.GetAPIGroup(), a.GetNamespace())
	default:
		text = fmt.Sprintf("User %q cannot %s resource %q in API group %q at the cluster scope", name, a.GetVerb(), resource, a.GetAPIGroup())
	}
	text = escape.Replace(text)
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// Forbidden is the API error for a refused request.
func Forbidden(a authorizer.Attributes, reason string) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}, a.GetName(), errors.New(Denial(a, reason)))
}

func resourceOf(a authorizer.Attributes) string {
	if sub := a.GetSubresource(); sub != "" {
		return a.GetResource() + "/" + sub
	}
	return a.GetResource()
}
