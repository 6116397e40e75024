// Package certificates declares the kinds of certificates.k8s.io (v1): requests for certificates, their approval and their signing.
// Who may approve and sign is admission's matter, signing itself a signer's.
package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// Group is the certificates group.
var Group = kind.Group{Name: certificatesv1.GroupName, Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{certificatesv1.AddToScheme}}
