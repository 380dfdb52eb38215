// The page `/docs`: Swagger UI over the root's own OpenAPI description. It loads nothing from elsewhere.
import "swagger-ui-dist/swagger-ui.css";
import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";

/** Order of the groups: by name, and the link of meshes last, which people do not call. */
function tagsSorter(one: string, other: string): number {
  return Number(one === "link") - Number(other === "link") || one.localeCompare(other);
}

SwaggerUI({ dom_id: "#routes", url: "openapi.json", deepLinking: true, displayRequestDuration: true, validatorUrl: null, tagsSorter });
