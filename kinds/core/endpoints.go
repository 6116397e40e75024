package core

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
)

var _ = kind.Add(&Group, kind.Def[corev1.Endpoints]{
	Names:          kind.Names{Plural: "endpoints", Short: []string{"ep"}},
	Warning:        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
	Default:        defaultEndpoints,
	Validate:       validateEndpoints,
	CreateOnUpdate: true,
	Columns: []kind.Column[corev1.Endpoints]{
		{Name: "Endpoints", Description: "The first ready addresses.", Value: func(e *corev1.Endpoints, _ time.Time) any { return firstEndpoints(e) }},
	},
})

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			defaultTo(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

// validateEndpoints lets subsets pass that did not change: they were good when they came in.
func validateEndpoints(e, old *corev1.Endpoints) field.ErrorList {
	if old != nil && apiequality.Semantic.DeepEqual(e.Subsets, old.Subsets) {
		return nil
	}
	var p problems
	for i := range e.Subsets {
		s, at := &e.Subsets[i], field.NewPath("subsets").Index(i)
		if len(s.Addresses)+len(s.NotReadyAddresses) == 0 {
			p.required(at, "must specify `addresses` or `notReadyAddresses`")
		}
		for j := range s.Addresses {
			checkEndpointAddress(&p, &s.Addresses[j], at.Child("addresses").Index(j))
		}
		for j := range s.NotReadyAddresses {
			checkEndpointAddress(&p, &s.NotReadyAddresses[j], at.Child("notReadyAddresses").Index(j))
		}
		for j, port := range s.Ports {
			at := at.Child("ports").Index(j)
			if port.Name != "" {
				p.label(at.Child("name"), port.Name)
			} else if len(s.Ports) > 1 {
				p.required(at.Child("name"), "")
			}
			p.each(at.Child("port"), port.Port, validation.IsValidPortNum(int(port.Port)))
			neededOneOf(&p, at.Child("protocol"), port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
			if port.AppProtocol != nil {
				p.qualified(at.Child("appProtocol"), *port.AppProtocol)
			}
		}
	}
	return p.list
}

func checkEndpointAddress(p *problems, a *corev1.EndpointAddress, at *field.Path) {
	p.ip(at.Child("ip"), a.IP)
	checkEndpointIP(p, a.IP, at.Child("ip"))
	if a.Hostname != "" {
		p.label(at.Child("hostname"), a.Hostname)
	}
	if a.NodeName != nil {
		p.subdomain(at.Child("nodeName"), *a.NodeName)
	}
}

// shownEndpoints is how many addresses a table has room for.
const shownEndpoints = 3

func firstEndpoints(e *corev1.Endpoints) string {
	var all []string
	for i := range e.Subsets {
		s := &e.Subsets[i]
		if len(s.Ports) == 0 {
			for _, a := range s.Addresses {
				all = append(all, a.IP)
			}
		}
		for _, port := range s.Ports {
			for _, a := range s.Addresses {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	if len(all) > shownEndpoints {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:shownEndpoints], ","), len(all)-shownEndpoints)
	}
	if len(e.Subsets) == 0 {
		return cell.None
	}
	return strings.Join(all, ",")
}
