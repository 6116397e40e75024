package kind

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CheckFinalizers holds finalizers to a domain, unless they are the cluster's own. path is that of the list.
func CheckFinalizers(names []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range names {
		switch {
		case strings.Contains(name, "/"), name == string(corev1.FinalizerKubernetes), name == metav1.FinalizerOrphanDependents, name == metav1.FinalizerDeleteDependents:
		default:
			errs = append(errs, field.Invalid(path.Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}
