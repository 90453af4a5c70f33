// Package v20170312 stands in for a module that the Go module proxy does not have: every call is an
// error.
package v20170312

import "errors"

var errNotHere = errors.New("this build has no support for Tencent's cloud")

// Client has the calls that flannel makes.
type Client struct{}

// Filter has the fields that flannel sets.
type Filter struct {
	Name   *string
	Values []*string
}

// Route has the fields that flannel uses.
type Route struct {
	RouteId              *uint64
	DestinationCidrBlock *string
	GatewayType          *string
	GatewayId            *string
	RouteType            *string
	Enabled              *bool
}

// RouteTable has the fields that flannel uses.
type RouteTable struct {
	RouteTableId *string
	RouteSet     []*Route
}

// DescribeRouteTablesRequest has the fields that flannel sets.
type DescribeRouteTablesRequest struct{ Filters []*Filter }

// DescribeRouteTablesResponse has the fields that flannel reads.
type DescribeRouteTablesResponse struct {
	Response *struct{ RouteTableSet []*RouteTable }
}

// DeleteRoutesRequest has the fields that flannel sets.
type DeleteRoutesRequest struct {
	RouteTableId *string
	Routes       []*Route
}

// CreateRoutesRequest has the fields that flannel sets.
type CreateRoutesRequest struct {
	RouteTableId *string
	Routes       []*Route
}

// NewClientWithSecretId gives a client whose calls fail.
func NewClientWithSecretId(_, _, _ string) (*Client, error) { return &Client{}, nil }

// NewDescribeRouteTablesRequest gives an empty request.
func NewDescribeRouteTablesRequest() *DescribeRouteTablesRequest {
	return &DescribeRouteTablesRequest{}
}

// NewDeleteRoutesRequest gives an empty request.
func NewDeleteRoutesRequest() *DeleteRoutesRequest { return &DeleteRoutesRequest{} }

// NewCreateRoutesRequest gives an empty request.
func NewCreateRoutesRequest() *CreateRoutesRequest { return &CreateRoutesRequest{} }

// DescribeRouteTables fails.
func (*Client) DescribeRouteTables(*DescribeRouteTablesRequest) (*DescribeRouteTablesResponse, error) {
	return nil, errNotHere
}

// DeleteRoutes fails.
func (*Client) DeleteRoutes(*DeleteRoutesRequest) (any, error) { return nil, errNotHere }

// CreateRoutes fails.
func (*Client) CreateRoutes(*CreateRoutesRequest) (any, error) { return nil, errNotHere }
