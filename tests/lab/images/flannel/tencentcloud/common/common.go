// Package common stands in for a module that the Go module proxy does not have. Flannel's backend
// for Tencent's cloud imports it, and the lab never uses that backend.
package common

// StringPtr is what flannel calls of it.
func StringPtr(v string) *string { return &v }

// StringPtrs is what flannel calls of it.
func StringPtrs(vs []string) []*string {
	out := make([]*string, len(vs))
	for i := range vs {
		out[i] = &vs[i]
	}
	return out
}

// BoolPtr is what flannel calls of it.
func BoolPtr(v bool) *bool { return &v }
