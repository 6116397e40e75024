package core

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

// timestamp is now; the gate stores it in whole seconds.
func timestamp(env kind.Env) metav1.Time { return metav1.NewTime(env.Now()) }

// subdomainName is the rule for most names; prefix is true for what a suffix will follow.
func subdomainName(name string, prefix bool) []string {
	return apivalidation.NameIsDNSSubdomain(name, prefix)
}

// labelName is the rule for names that become one DNS label (Namespace).
func labelName(name string, prefix bool) []string { return apivalidation.NameIsDNSLabel(name, prefix) }

func validateAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	return apivalidation.ValidateAnnotations(annotations, path)
}
